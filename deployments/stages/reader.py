"""The reader's deployment."""

from contracts.stages import ReadRequest, ReadResult
from deployments.stages.indexed import IndexedReplica
from stages.reader import Reader, ReaderConfig
from stages.redaction import RedactionConfig, Redactor


class ReaderReplica(IndexedReplica[ReadRequest, ReadResult]):
    """The reader, the one stage that sees the content store."""

    name = "reader"
    request_type = ReadRequest

    def build(self, config: ReaderConfig, redaction: RedactionConfig) -> Reader:
        """The stage."""
        return Reader(self.index, self.index, self.index, config, Redactor(redaction))
