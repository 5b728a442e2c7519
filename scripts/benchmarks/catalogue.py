"""All cases by name: how many ranks each runs on, and how far ahead of the peer it must be."""

from __future__ import annotations

from benchmarks import (
    calls,
    cases,
    compiled,
    kernels,
    quantized,
    restarts,
    serving,
    stores,
    strategies,
)

CASES = {
    f.__name__: f
    for f in (
        *(cases.dispatch, cases.mlp, cases.cnn, cases.gpt),
        *(compiled.compiled_chain, compiled.compiled_rows, compiled.compiled_mlp),
        *(compiled.compiled_cnn, compiled.compiled_gpt, compiled.compiled_lengths),
        *(compiled.compiled_residual, compiled.compiled_memory),
        *(compiled.compiled_guards, compiled.compiled_first),
        *(kernels.copies, kernels.orders, kernels.embedding_backward),
        *(kernels.convolutions, kernels.recurrent, kernels.save),
        *(kernels.recurrent_forward, kernels.pools, kernels.norms, kernels.attention),
        *(kernels.interpolation, kernels.products, quantized.quantized),
        *(strategies.ddp_mlp, strategies.ddp_100mb, strategies.ddp_gpt, strategies.compiled_ddp),
        *(strategies.fsdp_mlp, strategies.fsdp_gpt, strategies.compiled_fsdp),
        *(stores.fsdp_memory, stores.checkpoint),
        *(cases.all_reduce_4, cases.all_reduce_8, cases.all_reduce_16, cases.scatter_gather),
        *(cases.all_reduce, cases.memory, cases.launch, restarts.restart),
        *(calls.rpc_call, calls.rpc_tensor, calls.rpc_echo, calls.rpc_flight),
        *(calls.rpc_autograd, calls.rpc_memory, serving.serving),
    )
}
TWO = (
    *("ddp_mlp", "ddp_100mb", "ddp_gpt", "compiled_ddp"),
    *("fsdp_mlp", "fsdp_gpt", "compiled_fsdp", "fsdp_memory", "checkpoint"),
    *("all_reduce", "memory", "scatter_gather"),
    *("rpc_call", "rpc_tensor", "rpc_echo", "rpc_flight", "rpc_autograd", "rpc_memory"),
)
MORE = {"launch": 4, "restart": 4, "all_reduce_4": 4, "all_reduce_8": 8, "all_reduce_16": 16}
RANKS = {**dict.fromkeys(TWO, 2), **MORE}
WHOLE = {"launch": "launch 4 ranks, one all_reduce, exit"}  # timed from outside

# How many times faster than the peer we must be, and want to be.
BARS = {
    "op: add [8]": (1.0, 1.5),
    "step: MLP 784-256-256-10, batch 64": (1.0, 1.3),
    "compiled: ten elementwise ops on 1M floats": (1.0, 1.2),
    "compiled: the same, forward + backward": (1.0, 1.2),
    "mean of all kernels": (1.4, 1.6),  # geometric, of rows that are measured
    "compiled step: MLP 784-256-256-10, batch 64": (2.2, 3.0),
    "compiled step: MLP 16-16-10, batch 8": (4.0, 6.0),
    "compiled step: CNN 16-32, batch 64 of 28x28": (1.15, 1.3),
    "compiled step: GPT 2 layers x 128, 8 x 64 tokens": (1.25, 1.4),
    "compiled step: GPT, 100 lengths, each for the first time": (1.0, 2.0),
    "compiled step: GPT, 100 lengths again": (1.25, 1.4),
    "kernel: transposed copy 1024x1024": (1.0, 1.3),
    "kernel: cumsum of 1M": (1.0, 1.3),
    "kernel: cumsum of 1000 rows of 1000": (1.0, 1.3),
    "kernel: 10 largest of 1000, 1000 rows": (1.0, 1.3),
    "kernel: sort of 1M": (1.0, 1.3),
    "kernel: embedding 10000x128, 4096 places, with backward": (1.0, 1.3),
    **{
        f"kernel: convolution {name}{more}": (1.0, 1.3)
        for name in kernels.CONVOLUTIONS
        for more in ("", ", with backward")
    },
    **{
        f"kernel: product of {rows} rows, 1024x1024{more}": (1.0, 1.3)
        for rows in (1, 4, 8, 16)
        for more in ("", " transposed")
    },
    **{
        f"kernel: {name}, with backward": (1.0, 1.3)
        for name in (
            "max pooling 3x3 by twos 8x64x56x56",
            "mean pooling 3x3 by twos 8x64x56x56",
            "adaptive mean pooling to 7x7 8x64x56x56",
            "group norm, 8 groups 8x64x28x28",
            "instance norm 8x64x28x28",
            "masked attention with dropout 4x8x128x64",
            "nearest interpolation 8x32x28x28 to 56x56",
            "bilinear interpolation 8x32x28x28 to 56x56",
        )
    },
    "kernel: heads to the front 8x128x8x64": (1.0, 1.3),
    **{
        f"kernel: {name}, forward": (1.0, 1.3)
        for name in (
            *(f"{mode} 50 steps, 16 x 64 to 128" for mode in ("LSTM", "GRU", "RNN")),
            "LSTM 50 steps, 1 x 64 to 128",
            "LSTM 50 steps, 16 x 64 to 128 to 32",
            "LSTM 50 steps, 16 x 64 to 64 twice, both ways",
        )
    },
    "kernel: nearest interpolation 8x32x56x56 to 28x28, with backward": (1.0, 1.3),
    "step: CNN 16-32, batch 64 of 28x28": (1.0, 1.2),
    "kernel: LSTM 32 steps, 16 x 64 to 128": (1.0, 1.3),
    "kernel: GRU 32 steps, 16 x 64 to 128": (1.0, 1.3),
    "kernel: save 64 MB": (1.0, 1.3),
    "step: MLP under DDP, 2 ranks": (4.5, 7.0),
    "step: 100 MB of gradients under DDP, 2 ranks": (3.5, 5.0),
    "step: GPT under DDP, 2 ranks": (1.1, 1.25),
    "step: MLP under fully_shard, 2 ranks": (6.0, 10.0),
    "step: GPT under fully_shard, 2 ranks": (1.35, 1.6),
    "all_reduce 4 KB, 2 ranks": (60.0, 120.0),
    "all_reduce 64 KB, 2 ranks": (20.0, 40.0),
    "all_reduce 25 MB, 2 ranks": (8.0, 12.0),
    "all_reduce 25 MB, 4 ranks": (5.0, 8.0),
    "reduce_scatter + all_gather 25 MB, 2 ranks": (8.0, 12.0),
    WHOLE["launch"]: (8.0, 20.0),
    restarts.RESTART: (10.0, 40.0),
    "rpc: small call": (2.0, 8.0),
    "rpc: call with a tensor [8]": (2.0, 6.0),
    "rpc: echo of 16 MB": (1.5, 3.0),
    "rpc: 100 calls in flight": (2.0, 5.0),
    "rpc: autograd step, 64-64-64-10, batch 16": (1.5, 4.0),
    "serving: digits' CNN, 64 clients, a request": (1.3, 2.0),
    "serving: digits' CNN, 64 clients, processor time": (1.3, 1.6),
    "serving: digits' CNN, 64 clients, median": (1.3, 2.0),
    "serving: digits' CNN, 64 clients, 99 of 100": (1.3, 2.0),
    "memory of a serving worker (MB)": (5.0, 6.0),
}

# What must not be more than so much for us alone, and should not.
LIMITS = {
    "ratio: ten compiled ops to eager ones": (0.25, 0.15),
    "ratio: the same, forward + backward": (0.25, 0.2),
    "ratio: layer norm, GELU, residual, to eager": (0.67, 0.5),
    **{f"ratio: peak of a compiled {n} step to eager": (0.7, 0.6) for n in ("MLP", "CNN", "GPT")},
    **{f"guards: {what} of 100 parameters": (10e-6, 5e-6) for what in ("forward", "training step")},
    "compiled: first GPT step, nothing kept": (2.0, 1.0),
    "compiled: first GPT step, kernels kept": (0.3, 0.2),
    "ratio: compiled MLP under DDP to eager": (1.0, 0.8),
    "ratio: compiled GPT under DDP to eager": (0.91, 0.8),
    "ratio: GPT under fully_shard to DDP": (1.2, 1.05),
    "ratio: compiled MLP under fully_shard to eager": (1.15, 1.0),
    "ratio: compiled GPT under fully_shard to eager": (1.1, 1.0),
    "ratio: peak under fully_shard to plan": (1.1, 1.02),
    "memory: grown over 10,000 calls": (2.0, 0.5),
    **{
        f"ratio: {how} Linear 1024x1024, 1 row, to float32": (0.67, 0.5)
        for how in ("dynamic int8", "int8 weights")
    },
}
