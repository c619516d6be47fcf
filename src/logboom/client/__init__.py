"""What programs use to read and write logs.

from logboom.client import FileReader

with FileReader("data", "events") as reader:
    for record in reader.records(follow=True):
        print(record.seqno, record.value)
"""

from logboom.client.file_reader import FileReader

__all__ = ["FileReader"]
