"""The exceptions of the project, as one tree.

    DisttrainError
      |- ShapeError (RuntimeError, ValueError)      shapes that do not fit
      |- DTypeError (NotImplementedError, TypeError) element types that do not fit
      |- LayoutError (NotImplementedError)         operations that sparse tensors do not have
      |- NumberError (RuntimeError, ArithmeticError) numbers with no result: integers over zero
      |- LinAlgError (RuntimeError, ValueError)     a matrix without what was asked for
      |- DeviceError (RuntimeError)                 devices that do not fit, or are absent
      |    |- MetaError (NotImplementedError)       values of what is on the meta device
      |    |- OutOfMemoryError                      a device has no room for an array
      |    `- HostError (TypeError)                 one used as numbers of the host
      |- PlacementError (RuntimeError)              sharded tensors that do not fit
      |- AutogradError (RuntimeError)               misuse of the graph: backward twice ...
      |    `- AnomalyError                          nan found while anomaly detection is on
      |- ModuleError (AttributeError)               misuse of nn.Module
      |    |- ModuleNameError (KeyError)            a name that a module cannot register
      |    `- UninitializedError (ValueError, RuntimeError)  a parameter that has no shape yet
      |- StateDictError (RuntimeError)              a state dict that does not fit its module
      |    `- HookError (AssertionError)            a hook of loading returned something
      |- ConfigError (RuntimeError, ValueError)     a wrong setting, key or argument of a component
      |    |- MissingSetting (KeyError)             a setting that must be there and is not
      |    |- GroupError (AssertionError)           a process group that is not there
      |    |- PaddingError (AssertionError)         a padding index outside of its table
      |    |- ModeError (NotImplementedError)       settings that do not go together
      |    |- BackendError                          a backend that cannot be used
      |    `- UnboundAxis (NameError)               a named axis that no transform around binds
      |- SerializationError (RuntimeError, ValueError) a file that is not what it should be
      |    |- WriteError (OSError)                  a file that could not be written
      |    `- OperatorError (NotImplementedError)   an operator of a model that is not computed here
      |- NodeError (RuntimeError, ValueError)       an operation of a model that could not be run
      |- WorkerFailed (RuntimeError)                a worker process of a DataLoader died
      |- CaptureError (RuntimeError)                a program that cannot be captured or transformed
      |    |- EscapedValue (TypeError)              a transform's value that is used after it
      |    `- ExportError                           operations that a format of models cannot say
      |- CommError (RuntimeError)
      |    |- CollectiveMismatch                    ranks called different collectives
      |    |    `- ValuesDiffer                     values that must be equal on all ranks are not
      |    |- PeerFailed                            another rank died or raised
      |    |- MessageTooLarge (ValueError)          a message over a limit of its endpoint
      |    |- WaitTimeout (TimeoutError)            a deadline passed
      |    |- WorkerError (ValueError)              a worker that is not there, or has a wrong name
      |    |- PackError (PicklingError, ...)        a value that cannot go to another worker
      |    |- CallRefused                           a call over a limit of the worker called
      |    |- UnknownName (AttributeError)          a function or class that a worker has not
      |    |- RRefError                            a remote reference that cannot be used, or not so
      |    |- RemoteError                           what a worker raised, where it has no type here
      |    |- Deadlock                              every simulated rank waits
      |    `- StoreError                            the key-value store refused or is unreachable
      `- LaunchError (RuntimeError)                 the launcher could not start, or a rank failed

A message speaks to one reader and says: where; what was given; what is needed; what to do.
User's fault: one of these. Our fault: ``assert``.
"""

from __future__ import annotations

from pickle import PicklingError

from . import settings


def cause(error: BaseException) -> BaseException | None:
    """What to raise one of our own errors ``from`` that says all that ``error`` did: nothing, so
    that a traceback begins at the program's line. ``DISTTRAIN_FULL_TRACEBACK=1`` shows it, too."""
    return error if settings.FULL_TRACEBACK.flag() else None


class DisttrainError(Exception):
    """Root of every error that this project raises on purpose."""


class ShapeError(DisttrainError, RuntimeError, ValueError):
    """Shapes, sizes or dimensions that do not fit."""


class DimError(ShapeError, IndexError):
    """A dimension number or an index out of range."""


class DimKindError(DimError, TypeError):
    """What is given as a dimension number is no number."""


class OperandError(ShapeError, TypeError):
    """Operands that do not go together, or that an operation does not take."""


class DTypeError(DisttrainError, NotImplementedError, TypeError):
    """Element types that do not fit, or that an operation is not defined for."""


class LayoutError(DisttrainError, NotImplementedError):
    """An operation that tensors of this layout (sparse, strided) do not have."""


class NumberError(DisttrainError, RuntimeError, ZeroDivisionError):
    """An operation on integers that has no result: division by zero, a negative power."""


class LinAlgError(DisttrainError, RuntimeError, ValueError):
    """A matrix that has no such inverse, solution or decomposition."""


class DeviceError(DisttrainError, RuntimeError):
    """Tensors on devices that do not fit, or a device that this machine lacks."""


class MetaError(DeviceError, NotImplementedError):
    """The values of a tensor on the meta device, which has none, are asked for."""


class OutOfMemoryError(DeviceError):
    """A device's memory has no room for what was asked."""


class HostError(DeviceError, TypeError):
    """A tensor on a device was used where only one of the host can be."""


class PlacementError(DisttrainError, RuntimeError):
    """Sharded tensors whose placements or meshes do not fit, or one used as plain numbers."""


class AutogradError(DisttrainError, RuntimeError):
    """The autograd graph was used in a way that has no meaning."""


class NoWayBack(AutogradError, ValueError):
    """Gradients were asked for through a loop of which nobody knows how often it will turn."""


class AnomalyError(AutogradError):
    """A backward rule gave nan while anomaly detection was on."""


class ModuleError(DisttrainError, AttributeError):
    """An ``nn.Module`` was used before it was ready, or lacks a name."""


class UninitializedError(ModuleError, ValueError, RuntimeError):
    """A parameter of a lazy module was used before it had a shape."""


class ModuleNameError(ModuleError, KeyError):
    """A name that cannot be registered on a module: taken, empty, dotted, or not there."""

    __str__ = Exception.__str__  # KeyError's would quote the message


class StateDictError(DisttrainError, RuntimeError):
    """A state dict does not fit the module: missing, unexpected or mis-shaped entries."""


class HookError(StateDictError, AssertionError):
    """A hook of loading returned what nobody takes."""


class ConfigError(DisttrainError, RuntimeError, ValueError):
    """A setting, key or argument with no meaning."""


class GroupError(ConfigError, AssertionError):
    """A process group was to be left that is not there."""


class PaddingError(ConfigError, AssertionError):
    """A padding index that is none of the rows of a table."""


class ModeError(ConfigError, NotImplementedError):
    """A setting that an operation does not have together with another one."""


class BackendError(ConfigError):
    """A backend of process groups that does not exist, or cannot be used in this process."""


class UnboundAxis(ConfigError, NameError):
    """A collective names an axis that no transform around it binds."""


class MissingSetting(ConfigError, KeyError):
    """A setting that must be there and is not."""

    __str__ = Exception.__str__  # KeyError's would quote the message


class SerializationError(DisttrainError, RuntimeError, ValueError):
    """A file that is damaged, hostile, or of another format."""


class WriteError(OSError, SerializationError):
    """A file could not be written: ``errno`` says why, as for any ``OSError``."""


class OperatorError(SerializationError, NotImplementedError):
    """An operator of a model, or one of its attributes, that nothing here computes."""


class NodeError(DisttrainError, RuntimeError, ValueError):
    """An operation of a model that could not be run with what it was given."""


class WorkerFailed(DisttrainError, RuntimeError):
    """A worker process of a ``DataLoader`` died, or could not say what went wrong in it."""


class CaptureError(DisttrainError, RuntimeError):
    """A program that cannot be captured, replayed or transformed."""


class EscapedValue(CaptureError, TypeError):
    """A value from inside a transform that is used after the transform has returned."""


class ExportError(CaptureError):
    """A program has operations that a format of models cannot say."""


class FutureError(DisttrainError, RuntimeError):
    """A ``Future`` was completed twice or asked too early, or a callback of it raised."""


class CommError(DisttrainError, RuntimeError):
    """Communication between ranks failed."""


class CollectiveMismatch(CommError):
    """Ranks of one group called collectives that do not belong together."""


class ValuesDiffer(CollectiveMismatch):
    """Values that ``distributed.same`` was given, or what ranks did between two ``same_step``, are
    not equal on all ranks of a group. All of them raise it, with the same text."""


class PeerFailed(CommError):
    """Another rank died or raised.

    ``rank`` is its rank in the default group as that is now, ``global_rank`` the one that it had
    when the job started: after ``shrink`` they differ. ``cause``: one line that says what happened
    to it (``"killed by SIGKILL"``, ``"ValueError: ..."``), ``traceback``: its Python traceback
    where it had one. ``ended``: nothing says that it failed, but its process is gone.
    """

    def __init__(
        self,
        rank: int,
        cause: str,
        traceback: str = "",
        where: str = "",
        ended: bool = False,
        global_rank: int | None = None,
    ) -> None:
        self.rank, self.cause, self.traceback, self.where = rank, cause, traceback, where
        self.ended = ended
        self.global_rank = rank if global_rank is None else global_rank
        once = "" if self.global_rank == rank else f" (rank {global_rank} when the job started)"
        text = f"rank {rank}{once} {'has ended' if ended else 'failed'}: {cause}"
        super().__init__(f"{where}: {text}" if where else text)

    def again(self, where: str | None = None) -> PeerFailed:
        """The same error, to be raised now, ``where`` given anew. One that is kept for later must
        not be raised itself: it would keep the frames that it went through, and all they refer to.
        """
        place = self.where if where is None else where
        return PeerFailed(*self._fields(place))

    def __reduce__(self) -> tuple:
        return (PeerFailed, self._fields(self.where))

    def _fields(self, where: str) -> tuple:
        return self.rank, self.cause, self.traceback, where, self.ended, self.global_rank


class GroupRevoked(CommError):
    """A group cannot be used any more: the job goes on without some of its ranks. Those that are
    left call ``shrink``."""


class MessageTooLarge(CommError, ValueError):
    """A message between workers is over a limit; the text names the limit."""


class WaitTimeout(CommError, TimeoutError):
    """A wait reached its deadline; the message says what was awaited and for how long."""


class WorkerError(CommError, ValueError):
    """There is no such worker, or its name or number cannot be one."""


class PackError(CommError, PicklingError, AttributeError, TypeError):
    """A value cannot be pickled, so it cannot go to another worker."""


class CallRefused(CommError):
    """A worker does not take a call: the caller is over a limit, which the text names."""


class UnknownName(CommError, AttributeError):
    """A message names a function or a class that this worker has not, or may not be asked for."""


class RRefError(CommError):
    """A reference to another worker's value cannot be used: it is gone, or not here, or may not
    travel in this way."""


class RemoteError(CommError):
    """Another worker raised what cannot be raised here as it was; the text has its traceback."""


class Deadlock(CommError):
    """No simulated rank can go on; the message lists what each one waits for."""


class StoreError(CommError):
    """The key-value store refused a request or cannot be reached."""


class StoreTimeout(StoreError, WaitTimeout):
    """A key was not set in time; the message names the keys and how long was waited."""


class NetworkError(CommError):
    """Another process cannot be reached, or the connection to it broke."""


class StoreLost(StoreError, NetworkError):
    """The process that hosts the store is not there any more."""


class StoreUnreached(NetworkError, WaitTimeout):
    """No store was found in time where one was to be."""


class StoreRefused(StoreUnreached):
    """What answers where a store was to be is another program, or a store of another job."""


class QueueEmptyError(StoreError):
    """``queue_pop(block=False)`` found nothing."""


class LaunchError(DisttrainError, RuntimeError):
    """The launcher could not start a job, or a rank of it failed."""


class RankGone(BaseException):
    """Ends the threads of a rank that is no more (a simulated one that was killed). A dead process
    says nothing: who catches everything to tell others of it lets this go on."""
