"""The assembler's deployment."""

from contracts.stages import AssembleRequest, Assembly
from deployments.stages.base import StageReplica
from stages.assembler import Assembler, AssemblerConfig


class AssemblerReplica(StageReplica[AssembleRequest, Assembly]):
    """The assembler."""

    name = "assembler"
    request_type = AssembleRequest

    async def open(self, config: AssemblerConfig) -> Assembler:
        """Nothing to warm up."""
        return Assembler(config)
