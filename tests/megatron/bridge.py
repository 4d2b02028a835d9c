"""`mgplan export --to bridge-overrides`, put on a configuration of Megatron-Bridge by Bridge itself.

The model is that of the same plan's flags for Megatron-LM, as Megatron-LM configures it; everything that the overrides name begins with Bridge's
own defaults. Hydra parses the overrides, the ConfigContainer validates the result, and each field is then compared with what Megatron-LM's flags
made of it."""

import contextlib
import dataclasses
import functools
import io
import re
import shlex
from pathlib import Path

import forks
import jobs
import mgplan
import oracle
from stand_ins import bridge as stand_in
from stand_ins import gpu


@functools.cache
def imported():
    """Modules of Megatron-Bridge: configurations, overrides, and providers of three kinds of models."""
    stand_in.install(oracle.ROOT)
    from megatron.bridge.models import gpt_provider, mla_provider
    from megatron.bridge.models.hybrid import hybrid_provider
    from megatron.bridge.training import config
    from megatron.bridge.training.tokenizers import config as tokenizers
    from megatron.bridge.training.utils import omegaconf_utils

    providers = {"gpt": gpt_provider.GPTModelProvider, "latent": mla_provider.MLAModelProvider, "hybrid": hybrid_provider.HybridModelProvider}
    return config, tokenizers, omegaconf_utils, providers


def read_overrides(path):
    text = Path(path).read_text()
    return shlex.split(re.search(r"(?s)MEGATRON_BRIDGE_OVERRIDES=\((.*)\)", text)[1], comments=True)


def container_of(job, named):
    """A configuration of the job's model, in which the fields of `named` have Bridge's defaults."""
    config, tokenizers, _, providers = imported()
    real, arguments = job.model.transformer, job.arguments
    provider = providers["hybrid" if arguments.hybrid_layer_pattern else "latent" if arguments.multi_latent_attention else "gpt"]
    fields = {field.name for field in dataclasses.fields(provider) if field.init} & {field.name for field in dataclasses.fields(real)}
    model = provider(**{name: getattr(real, name) for name in sorted(fields) if f"model.{name}" not in named}, vocab_size=arguments.vocab_size,
                     seq_length=1024, position_embedding_type=arguments.position_embedding_type)
    return config.ConfigContainer(
        train=config.TrainingConfig(train_iters=100), model=model, scheduler=config.SchedulerConfig(),
        optimizer=config.OptimizerConfig(optimizer="adam", lr=1e-4, min_lr=0.0, bf16=arguments.bf16, fp16=arguments.fp16),
        dataset=config.MockGPTDatasetConfig(seq_length=1024, random_seed=1, reset_position_ids=False, reset_attention_mask=False, eod_mask_loss=False),
        logger=config.LoggerConfig(), tokenizer=tokenizers.TokenizerConfig(tokenizer_type="NullTokenizer", vocab_size=arguments.vocab_size),
        checkpoint=config.CheckpointConfig())


def differences(job, container, named):
    """Fields that the overrides name and that differ from what Megatron-LM made of the flags."""
    sections = {"model": job.model.transformer, "ddp": job.container.ddp, "optimizer": job.container.optimizer}
    idle = {"cp_comm_type"} if job.model.transformer.context_parallel_size == 1 else set()
    for path in named:
        section, _, name = path.partition(".")
        if section not in sections or not hasattr(sections[section], name) or name in idle:
            continue
        ours, real = getattr(getattr(container, section), name), getattr(sections[section], name)
        if str(ours) != str(real):
            yield f"{path} is {ours}, and by Megatron-LM's flags {real}"


def load(item):
    """What is wrong with (overrides, Megatron-LM's command): texts."""
    overrides, command = item
    omegaconf_utils = imported()[2]
    oracle.set_environment(command)
    job = oracle.Job(command)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), gpu.WithoutGpu():
        for _, step in oracle.Job.PHASES[:4]:
            step(job)
        named = [override.partition("=")[0] for override in overrides]
        try:
            container = container_of(job, named)
            omegaconf_utils.process_config_with_overrides(container, cli_overrides=overrides)
            container.validate()
        except Exception as error:  # pylint: disable=broad-except
            return [f"{type(error).__name__}: {error}"[:400] + f" at {oracle.place_of(error)}"]
        return list(differences(job, container, named))


def judged(program, rows, workers):
    """Exports the plans of these rows of exports.judged() and loads them; returns (number compared, texts of differences)."""
    items, names, texts = [], [], []
    for row in rows:
        name, path = f"{row['model']} ({' '.join(row['options'])})", f"{row['plan']}.overrides"
        try:
            mgplan.run(program, "export", row["plan"], "--to", "bridge-overrides", "--output", path)
        except mgplan.Failed as failure:
            texts.append(f"{name}: not exported, {failure}")
            continue
        words, environment = jobs.read(row["sh"])
        command = oracle.Command(jobs.with_users_own(words), row["world"], jobs.capability_of(mgplan.option(row["options"], "--cluster")), environment)
        items.append((read_overrides(path), command))
        names.append(name)
    imported()
    for index, wrong in forks.map_forked(load, items, workers, 180, lambda text: [text]):
        texts += [f"{names[index]}: {text}" for text in wrong]
    return len(items), texts
