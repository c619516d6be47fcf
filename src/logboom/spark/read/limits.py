"""How much of what waits a micro-batch takes.

What is allowed is shared by what waits in each log. A log with something to give gives at least a record, so none
starves, and many logs may together give a few records more than were asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from logboom.client.catalog import LogCatalog
from logboom.spark.read.options import ReadOptions
from logboom.spark.read.planner import RecordSpan, find_pieces


def limit_spans(catalog: LogCatalog, options: ReadOptions, spans: Sequence[RecordSpan]) -> list[RecordSpan]:
    """The first part of each, together no more than the options allow."""
    waiting = sum(_count(span) for span in spans)
    if options.max_records is not None and waiting > options.max_records:
        spans = [_shorten(span, options.max_records / waiting) for span in spans]
    if options.max_bytes is None:
        return list(spans)
    sizes = [_measure(catalog, span) for span in spans]
    total = sum(sizes)
    if total <= options.max_bytes:
        return list(spans)
    return [_fit(catalog, span, size, options.max_bytes / total) for span, size in zip(spans, sizes, strict=True)]


def _count(span: RecordSpan) -> int:
    return span.seqno_until - span.seqno_from


def _measure(catalog: LogCatalog, span: RecordSpan) -> int:
    if not _count(span):
        return 0
    return sum(piece.size for piece in find_pieces(catalog, span, 2**62))


def _shorten(span: RecordSpan, share: float) -> RecordSpan:
    count = max(1, int(_count(span) * share))
    return replace(span, seqno_until=min(span.seqno_until, span.seqno_from + count))


def _fit(catalog: LogCatalog, span: RecordSpan, size: int, share: float) -> RecordSpan:
    """The part that takes about this share of its bytes."""
    allowed = max(1, int(size * share))
    if size <= allowed:
        return span
    near = _shorten(span, min(1.0, 4 * share))  # a long way behind that nobody needs to look
    pieces = find_pieces(catalog, near, allowed)
    if not pieces or not pieces[0].size:
        return _shorten(span, share)  # within one batch the index knows nothing
    piece = pieces[0]
    fitting = replace(span, seqno_until=max(piece.seqno_until, span.seqno_from))
    return fitting if piece.size <= allowed else _shorten(fitting, allowed / piece.size)
