"""Pipeline parallelism under PyTorch's names: stages, micro-batches, schedules."""

from .actions import Action, Kind, Plan, plan_from_csv, plan_of
from .microbatch import TensorChunkSpec, merge_chunks, split_args_kwargs_into_chunks
from .schedules import (
    PipelineScheduleMulti,
    PipelineScheduleSingle,
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
    get_schedule_class,
)
from .split import Pipe, SplitPoint, build_stage, pipe_split, pipeline, split_by_cost, split_layers
from .stage import PipelineStage
