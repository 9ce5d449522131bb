"""Base class of local models (ONNX, embedding tables): loads a model once, and runs it in a thread pool."""

from __future__ import annotations

import importlib.util
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from contextrouter.contracts import Plugin
from contextrouter.errors import ContractError, MissingDependency
from contextrouter.runtime.import_order import import_alone
from contextrouter.runtime.threads import Threads

M = TypeVar("M")


class ModelInThreads(Plugin, Generic[M]):
    """A plugin whose model runs in `threads` threads. `open()` loads it once, `aclose()` lets go of it.

    `label` names the plugin in messages. `packages` are the modules it imports and the distributions that
    have them, all of them in the extra `extra`.
    """

    label: str
    extra: str
    packages: Mapping[str, str]
    threads: int
    _loaded: M | None = None
    _pool: Threads | None = None

    @abstractmethod
    def load(self) -> M:
        """Read the model from the disk. It runs in a thread."""

    async def open(self) -> None:
        """Load the model. Raises MissingDependency without the packages of its extra."""
        if self._pool is not None:
            return
        for module, package in self.packages.items():
            if importlib.util.find_spec(module) is None:
                raise MissingDependency(package, self.extra, what=self.label)
        pool = Threads(self.threads, self.extra)
        try:
            if "numpy" in self.packages:
                await pool.run(import_alone, "numpy")
            self._loaded = await pool.run(self.load)
        except BaseException:
            pool.close()
            raise
        self._pool = pool

    async def aclose(self) -> None:
        """Let go of the model and the threads."""
        if self._pool is not None:
            self._pool.close()
        self._pool = self._loaded = None

    async def ping(self) -> None:
        """Raise when the model is not loaded."""
        self._get_model()

    def _get_model(self) -> tuple[Threads, M]:
        """The threads and the model. Raises ContractError before `open()`."""
        if self._pool is None or self._loaded is None:
            raise ContractError(f"{self.label} is not open. Call open() first.", law="opened before use")
        return self._pool, self._loaded


def onnx_session(model: bytes | str) -> Any:
    """A session of onnxruntime for the content or the path of a model. It uses one core."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
