from __future__ import annotations

import json
from typing import Any

import pytest
from tests.helpers import make_learner

from encore import registry
from encore.config import LearnerConfig, choose_run_part, resolve_parts
from encore.errors import EncoreError
from encore.settings import PlanSettings, RehearsalSettings, RunSettings, StreamSettings


def test_learner_config_survives_json() -> None:
    config = make_learner(parts={"classifier": "softmax", "objective.memory_weight": 0.25}).config
    assert LearnerConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_run_settings_survive_json() -> None:
    settings = RunSettings(
        stream=StreamSettings(class_order=(2, 0, 1), first_tasks=2),
        rehearsal=RehearsalSettings(method="er", classifier="softmax"),
        plan=PlanSettings(repeats=10, num_ops=1),
        part_options={"objective.memory_weight": 0.25},
    )
    assert json.loads(json.dumps(settings.to_json())) == settings.to_json()
    assert RunSettings.from_json(settings.to_json()) == settings


def test_method_decides_what_is_not_chosen() -> None:
    parts = resolve_parts("er", {"classifier": None, "model.width": 7})
    assert {kind: choice.name for kind, choice in parts.items()} == {
        "model": "reduced_resnet18",
        "retrieval": "uniform",
        "retention": "reservoir",
        "objective": "cross_entropy",
        "classifier": "nearest_class_mean",
        "engine": "auto",
    }
    assert parts["model"].options == {"width": 7}


def test_whole_number_will_do_for_a_float() -> None:
    chosen = resolve_parts("er", {"objective.memory_weight": 2})["objective"].options["memory_weight"]
    assert (type(chosen), chosen) == (float, 2.0)


@pytest.mark.parametrize("wrong", [True, "1", None, [1]])
def test_wrong_type_of_an_option_is_refused(wrong: Any) -> None:
    with pytest.raises(EncoreError, match=r"model\.width must be of type int, got"):
        resolve_parts("er", {"model.width": wrong})


def test_benchmark_and_controller_are_the_run_s() -> None:
    assert choose_run_part(RunSettings(), "benchmark").name == "digits"
    assert choose_run_part(RunSettings(), "controller").name == "fixed"


def test_hyphens_and_underscores_are_the_same() -> None:
    assert registry.resolve("classifier", "nearest-class-mean") == "nearest_class_mean"


def test_wrong_name_gets_the_nearest() -> None:
    with pytest.raises(EncoreError, match=r"no benchmark 'cifar10'; did you mean 'cifar100'\?"):
        registry.find("benchmark", "cifar10")
    with pytest.raises(EncoreError, match=r"no retrieval 'zzz' \(known: .*uniform\)"):
        registry.find("retrieval", "zzz")
