"""What a server is compared with: uvicorn and PyTorch, requests joined in the same way."""

import asyncio
import json

import numpy as np
import torch
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from benchmarks.serving import MAX_BATCH, MAX_DELAY, PORT_OF_PEER, digits

torch.set_num_threads(1)
model, waiting, came = digits(torch.nn).eval(), [], asyncio.Event()


@torch.inference_mode()
def run(batch):
    return model(torch.from_numpy(np.concatenate(batch))).numpy()


async def join():
    loop = asyncio.get_running_loop()
    while True:
        await came.wait()
        until = loop.time() + MAX_DELAY
        while len(waiting) < MAX_BATCH and loop.time() < until:
            await asyncio.sleep(MAX_DELAY / 4)
        batch = waiting[:MAX_BATCH]
        del waiting[:MAX_BATCH]
        if not waiting:
            came.clear()
        results, at = await loop.run_in_executor(None, run, [x for x, _ in batch]), 0
        for x, answer in batch:
            answer.set_result(results[at : at + len(x)])
            at += len(x)


async def infer(request):
    (given,) = json.loads(await request.body())["inputs"]
    x = np.array(given["data"], np.float32).reshape(given["shape"])
    answer = asyncio.get_running_loop().create_future()
    waiting.append((x, answer))
    came.set()
    y = await answer
    output = {"name": "output", "shape": list(y.shape), "data": y.ravel().tolist()}
    return JSONResponse({"model_name": "digits", "outputs": [{**output, "datatype": "FP32"}]})


async def serve():
    app = Starlette(routes=[Route("/v2/models/digits/infer", infer, methods=["POST"])])
    joining = asyncio.create_task(join())
    config = uvicorn.Config(app, port=PORT_OF_PEER, log_level="warning", access_log=False)
    await uvicorn.Server(config).serve()
    joining.cancel()


if __name__ == "__main__":
    asyncio.run(serve())
