"""One contestant of benchmarks/rivals.py, in a process and an environment of its own.

It makes itself ready, says so, and then for each number that it reads learns so many incoming batches, and
answers with the seconds that passed, the seconds of processor time, and the number of SGD steps. All have the
same network, the same synthetic images, and a memory that is full.

    python -m benchmarks.rival_worker capymoa '{"width": 20, ...}'
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

Learn = Callable[[int], None]  # learns so many incoming batches
NUM_CLASSES = 100
MEMORY_SIZE = 2000
MAGNITUDE = 14
SHAPE = (3, 32, 32)
MOST_BATCHES = 500


def main() -> None:
    """Answer until there is nothing more to read."""
    name, sizes = sys.argv[1], json.loads(sys.argv[2])
    if name == "encore":
        from encore.processor import keep_freed_memory, prepare_environment

        prepare_environment()
        keep_freed_memory()
    import torch

    torch.set_num_threads(sizes["threads"])
    torch.manual_seed(0)
    kinds: list[Any] = [torch.optim.SGD]
    if name == "encore":
        from encore.descent import GradientDescent

        kinds = [GradientDescent]
    steps = _count_steps(*kinds)
    learn = {"bare": bare, "encore": encore, "capymoa": capymoa, "avalanche": avalanche}[name](sizes)
    learn(1)
    say({"ready": True, "versions": versions(name)})
    for line in sys.stdin:
        before, wall, processor = len(steps), time.perf_counter(), time.process_time()
        learn(int(line))
        now = {"wall": time.perf_counter() - wall, "processor": time.process_time() - processor}
        say(now | {"steps": len(steps) - before})


def say(answer: dict[str, Any]) -> None:
    """Write one line of JSON, marked, as libraries print too."""
    print(f"answer {json.dumps(answer)}", flush=True)


def _count_steps(*kinds: Any) -> list[int]:
    """Return a list that grows by one with every step of these kinds of SGD."""
    steps: list[int] = []

    def counting(real: Any) -> Any:
        def step(self: Any, *arguments: Any) -> Any:
            steps.append(1)
            return real(self, *arguments)

        return step

    for kind in kinds:
        kind.step = counting(kind.step)
    return steps


def images_and_labels(number: int, seed: int) -> tuple[Any, Any]:
    """Return uint8 images [N, 3, 32, 32] and labels [N]: the same for every contestant."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (number, *SHAPE), generator=generator, dtype=torch.uint8)
    return images, torch.randint(0, NUM_CLASSES, (number,), generator=generator)


def network(width: int) -> Any:
    """Return the network that all train, as an nn.Module in PyTorch's default layout."""
    from encore.models.reduced_resnet18 import ReducedResNet18

    return ReducedResNet18(SHAPE, NUM_CLASSES, width)


def bare(sizes: dict[str, Any]) -> Learn:
    """Return the loop without a library."""
    from encore.bare import BareLoop

    loop = BareLoop(network(sizes["width"]), MEMORY_SIZE, sizes["batch"])
    images, labels = images_and_labels(MEMORY_SIZE, 1)
    loop.images, loop.labels, loop.num_seen = list(images), labels.tolist(), MEMORY_SIZE
    stream = _batches(sizes["batch"])

    def learn(number: int) -> None:
        for _ in range(number):
            incoming, classes = next(stream)
            loop.observe(incoming, classes, sizes["repeats"], num_ops=1, magnitude=MAGNITUDE)

    return learn


def encore(sizes: dict[str, Any]) -> Learn:
    """Return Encore's learner."""
    import torch

    from encore import Learner, Plan
    from encore.interfaces import Batch

    learner = Learner(
        image_shape=SHAPE,
        num_classes=NUM_CLASSES,
        memory_size=MEMORY_SIZE,
        memory_batch_size=sizes["batch"],
        parts={"model.width": sizes["width"]},
        plan=Plan(sizes["repeats"], 1, MAGNITUDE),
        precision=sizes["precision"],
        device="cpu",
    )
    learner.memory.write(torch.arange(MEMORY_SIZE), Batch(*images_and_labels(MEMORY_SIZE, 1)))
    stream = _batches(sizes["batch"])

    def learn(number: int) -> None:
        for _ in range(number):
            learner.observe(*next(stream))

    return learn


def capymoa(sizes: dict[str, Any]) -> Learn:
    """Return CapyMOA's RAR around its Finetune; RandAugment is torchvision's, for each image."""
    import torch

    transforms = _torchvision_transforms()
    from capymoa.classifier import Finetune
    from capymoa.ocl.strategy import RAR
    from capymoa.stream import Schema

    num_pixels = SHAPE[0] * SHAPE[1] * SHAPE[2]
    schema = Schema.from_custom(
        features=[*(f"pixel{number}" for number in range(num_pixels)), "class"],
        target="class",
        categories={"class": [str(number) for number in range(NUM_CLASSES)]},
    )
    schema.shape = SHAPE
    rand_augment = transforms.RandAugment(num_ops=1, magnitude=MAGNITUDE)

    def augment(images: Any) -> Any:  # on floats torchvision's RandAugment fails
        return torch.stack([rand_augment(image) for image in (images * 255).to(torch.uint8)]).float() / 255

    model = network(sizes["width"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    learner = RAR(Finetune(schema, model, optimizer), augment, MEMORY_SIZE, sizes["repeats"])
    images, labels = images_and_labels(MEMORY_SIZE, 1)
    learner.coreset.update(images.flatten(1).float() / 255, labels)
    stream = _batches(sizes["batch"])

    def learn(number: int) -> None:
        for _ in range(number):
            incoming, classes = next(stream)
            learner.batch_train(incoming.flatten(1).float() / 255, classes)

    return learn


def avalanche(sizes: dict[str, Any]) -> Learn:
    """Return Avalanche's Naive with its ReplayPlugin, K epochs over experiences of one batch each."""
    import torch

    transforms = _torchvision_transforms()
    from avalanche.benchmarks import benchmark_from_datasets
    from avalanche.benchmarks.scenarios.online import split_online_stream
    from avalanche.benchmarks.utils import as_classification_dataset
    from avalanche.evaluation.metrics import loss_metrics
    from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin
    from avalanche.training.storage_policy import ReservoirSamplingBuffer
    from avalanche.training.supervised import Naive

    augment = transforms.Compose(
        [transforms.RandAugment(num_ops=1, magnitude=MAGNITUDE), transforms.ToTensor()]
    )

    def dataset(number: int, seed: int) -> Any:
        groups = {"train": (augment, None), "eval": (transforms.ToTensor(), None)}
        return as_classification_dataset(_Pictures(*images_and_labels(number, seed)), transform_groups=groups)

    memory = ReservoirSamplingBuffer(MEMORY_SIZE)
    memory.update_from_dataset(dataset(MEMORY_SIZE, 1).train())
    model = network(sizes["width"])
    strategy = Naive(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        criterion=torch.nn.CrossEntropyLoss(),
        train_mb_size=sizes["batch"],
        train_epochs=sizes["repeats"],
        plugins=[ReplayPlugin(MEMORY_SIZE, batch_size_mem=sizes["batch"], storage_policy=memory)],
        evaluator=EvaluationPlugin(loss_metrics(epoch=True), loggers=[]),
    )
    scenario = benchmark_from_datasets(train=[dataset(MOST_BATCHES * sizes["batch"], 2)])
    stream = iter(split_online_stream(scenario.train_stream, experience_size=sizes["batch"]))

    def learn(number: int) -> None:
        for _ in range(number):
            strategy.train(next(stream))

    return learn


class _Pictures:
    """Images as Pillow's, which is how torchvision's data sets hand them out."""

    def __init__(self, images: Any, labels: Any) -> None:
        from PIL import Image

        self.pictures = [Image.fromarray(image) for image in images.permute(0, 2, 3, 1).numpy()]
        self.targets = labels.tolist()

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        return self.pictures[number], self.targets[number]


def _batches(size: int) -> Any:
    images, labels = images_and_labels(MOST_BATCHES * size, 2)
    return iter(zip(images.split(size), labels.split(size), strict=True))


def _torchvision_transforms() -> Any:
    """Import torchvision's transforms, also where its compiled half does not fit this build of torch.

    Its Python half says how two operators, nms and qnms, behave that the compiled half would have brought;
    without them the import fails. They are of object detection: declared here, nothing calls them.
    """
    import torch

    try:
        import torchvision
    except RuntimeError:
        for module in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[module]
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision

        torchvision._declared = library  # it lasts as long as the module
    from torchvision import transforms

    return transforms


def versions(name: str) -> dict[str, str]:
    """Return the versions that matter to a contestant."""
    import importlib.metadata

    packages = {"capymoa": ["capymoa", "torchvision"], "avalanche": ["avalanche-lib", "torchvision"]}
    wanted = ["torch", "numpy", "pillow", *packages.get(name, [])]
    return {package: importlib.metadata.version(package) for package in wanted}


if __name__ == "__main__":
    main()
