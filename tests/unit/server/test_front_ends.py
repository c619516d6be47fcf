"""A front-end is one folder and one line: the table, the folders and the import contract name the same ones."""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from logboom.protocols.endpoint import Endpoint
from logboom.server.config import CONFIG
from logboom.server.front_ends import FRONT_ENDS, FrontEndKind
from logboom.server.keys import KEYS
from logboom.server.reference import example

ROOT = Path(__file__).parents[3]
NAMES = [kind.name for kind in FRONT_ENDS]


def test_every_folder_with_a_front_end_is_in_the_table() -> None:
    folders = {path.parent.name for path in (ROOT / "src/logboom/protocols").glob("*/front_end.py")}
    assert folders == set(NAMES)


def test_the_import_contract_keeps_all_front_ends_apart() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = (contract for contract in contracts if contract["type"] == "independence")
    assert set(contract["modules"]) == {f"logboom.protocols.{name}" for name in NAMES}


def test_names_ports_and_options_are_each_ones_own() -> None:
    for values in (NAMES, [kind.port for kind in FRONT_ENDS], [kind.option for kind in FRONT_ENDS]):
        assert len(set(values)) == len(FRONT_ENDS)


@pytest.mark.parametrize("kind", FRONT_ENDS, ids=lambda kind: kind.name)
def test_a_front_end_has_an_address_and_perhaps_a_section_in_the_configuration(kind: FrontEndKind) -> None:
    config = CONFIG(data="here")
    assert config.listen.endpoints(kind) == [Endpoint("127.0.0.1", kind.port)]
    assert callable(import_module(f"logboom.protocols.{kind.name}.front_end").make)
    section = [name for name in KEYS if name.startswith(f"{kind.name}.")]
    if kind.settings is None:
        assert section == []
    else:
        assert kind.settings.section == kind.name
        assert section == [f"{kind.name}.{field}" for field in kind.settings.__struct_fields__]
        assert set(kind.settings.meanings) == set(kind.settings.__struct_fields__)
        assert f"# {kind.meaning}\n[{kind.name}]" in example()
