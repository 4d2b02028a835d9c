#!/usr/bin/env python3
"""Reads the recipes that Megatron-Bridge ships into the data file that `mgplan recipes` uses.

usage: read_bridge_recipes.py WHEEL [--output FILE]

WHEEL is the folder of an unpacked wheel of megatron-bridge (pip download --no-deps megatron-bridge==0.6.2; unzip). Every public function of
its recipes and performance recipes that returns a ConfigContainer runs once with its default arguments. Nothing that they import is
needed: torch, transformers, megatron.core and the wheel's own models are replaced by objects that record what is assigned to them, so that
no model is downloaded and nothing is computed. A read of a field that no recipe assigned gets the default that the wheel's source states
for it, or one of CORE_DEFAULTS; a recipe that reads anything else is listed under "not_recorded" with the reason.

The output holds facts alone: names of functions, fields and their values. In `recipes` a recipe lists only what differs from the settings
of its base: "without" are fields of the base that it leaves alone. `providers` are the constants that the wheel sets on each model type.
"""
import argparse, ast, collections, contextlib, dataclasses, importlib.abc, importlib.machinery, importlib.util, io, json, os, re, sys, types

# Executed from the wheel; all other modules are recorded.
EXECUTED = ("megatron.bridge.recipes", "megatron.bridge.perf_recipes", "megatron.bridge.diffusion.recipes",
            "megatron.bridge.training.mixed_precision", "megatron.bridge.training.flex_dispatcher_backend", "megatron.bridge.utils.cuda_graph")
# Packages whose __init__ only collects what its modules hold.
COLLECTIONS = ("megatron.bridge.recipes", "megatron.bridge.perf_recipes", "megatron.bridge.diffusion.recipes")

# Fields that recipes read before they assign them and that have the same default for every model: NVIDIA/Megatron-LM core_v0.19,
# core/transformer/transformer_config.py, core/model_parallel_config.py, core/distributed/distributed_data_parallel_config.py and
# core/optimizer/optimizer_config.py.
CORE_DEFAULTS = {
    "cuda_graph_impl": "none", "cuda_graph_scope": None, "cuda_graph_modules": None, "moe_flex_dispatcher_backend": None,
    "tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1, "virtual_pipeline_model_parallel_size": None,
    "context_parallel_size": 1, "expert_model_parallel_size": 1, "expert_tensor_parallel_size": None, "sequence_parallel": False,
    "pipeline_model_parallel_layout": None, "recompute_granularity": None, "recompute_modules": None, "overlap_grad_reduce": False,
    "overlap_param_gather": False, "use_distributed_optimizer": False, "calculate_per_token_loss": False,
    "te_rng_tracker": False, "use_transformer_engine_op_fuser": False, "num_layers_in_first_pipeline_stage": None, "num_layers_in_last_pipeline_stage": None, "use_megatron_fsdp": False,
}
# Facts of a checkpoint that decide what its recipes set: config.json of the repository, or its converter in the wheel (models/*_bridge.py).
CHECKPOINT_FACTS = {
    "deepseek-ai/DeepSeek-V2": {"rotary_base": 10000}, "deepseek-ai/DeepSeek-V2-Lite": {"rotary_base": 10000},
    "deepseek-ai/DeepSeek-V3": {"apply_rope_fusion": False}, "moonshotai/Moonlight-16B-A3B": {"apply_rope_fusion": False},
    "moonshotai/Kimi-K2-Instruct": {"apply_rope_fusion": False}, "moonshotai/Kimi-K2.5": {"apply_rope_fusion": False}, "deepseek-ai/DeepSeek-V4-Flash": {"mtp_num_layers": 1},
}
# Sections that say nothing about memory, time or legality.
LEFT_OUT = {"logger", "scheduler", "validation", "rerun_state_machine", "profiling", "ft", "straggler", "nvrx_straggler", "tensor_inspect",
            "inprocess_restart", "optimizer_config_override_provider"}
KEPT_OF = {"dataset": {"seq_length", "enable_offline_packing", "enable_in_batch_packing"},
           "tokenizer": {"tokenizer_type", "tokenizer_model", "vocab_size", "use_tokenizer_vocab_size"},
           "checkpoint": {"ckpt_format", "async_save", "save", "load"}, "rng": {"te_rng_tracker"},
           "train": {"micro_batch_size", "global_batch_size", "rampup_batch_size", "train_iters", "manual_gc", "manual_gc_interval"}}


OF_CHECKPOINT = "of the checkpoint"                             # such a setting is left out


class NotRecorded(Exception):
    """A recipe needs a value that no stand-in has."""


class Symbol:
    """A value that is known by its name alone: a dtype, a member of an enumeration, a function."""

    def __init__(self, path):
        self.path = path

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Symbol(f"{self.path}.{name}")

    def __call__(self, *args, **kwargs):
        if self.path == "torch.cuda.is_available":
            return False
        if self.path == "megatron.bridge.utils.common_utils.get_rank_safe":
            return 0
        return Recorded(self.path, kwargs)

    def __getitem__(self, name):
        return Symbol(f"{self.path}.{name}")

    def __bool__(self):
        raise NotRecorded(f"tests {self.path}, which is not computed here")

    def __eq__(self, other):
        return isinstance(other, Symbol) and self.path == other.path

    def __hash__(self):
        return hash(self.path)


class OfCheckpoint:
    """A value that the checkpoint's configuration holds: recipes may pass it on or test that it is there."""

    def __init__(self, name, field):
        self.__dict__.update(_from=name, _field=field)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return OfCheckpoint(self._from, name)

    def refuse(self, *_):
        raise NotRecorded(f"computes with {self._field} of {self._from}, which the checkpoint's configuration holds")

    __bool__ = __int__ = __float__ = __index__ = __iter__ = __len__ = __add__ = __radd__ = __sub__ = __mul__ = __floordiv__ = refuse
    __lt__ = __le__ = __gt__ = __ge__ = refuse


class RecordedType(type):
    """A class of another package: a base class, an annotation, or the maker of a recorded object."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Symbol(f"{cls.__name__}.{name}")

    def __getitem__(cls, name):
        return Symbol(f"{cls.__name__}.{name}")


class Recorded(metaclass=RecordedType):
    """An object of such a class, with what was assigned to it."""

    def __init__(self, *args, **kwargs):
        kind = type(self).__name__
        if type(self) is Recorded:                             # Recorded(kind, fields)
            kind, kwargs = args[0], args[1]
        elif kind == "ConfigContainer" and "env_vars" not in kwargs:
            kwargs = {"env_vars": {}, **kwargs}
        object.__setattr__(self, "_kind", kind)
        object.__setattr__(self, "_from", None)
        for name, value in kwargs.items():
            setattr(self, name, value)

    @classmethod
    def from_hf_pretrained(cls, name, *args, **kwargs):
        made = Recorded("AutoBridge", {})
        object.__setattr__(made, "_from", getattr(name, "_from", None) or name)
        return made

    from_hf_config = from_pretrained = from_hf_pretrained

    def __getattr__(self, name):
        if name.startswith("_") or name == "dtype":
            raise AttributeError(name)
        if name in ("to_megatron_provider", "provider_bridge", "to_text_provider"):
            def provider(*args, **kwargs):
                made = Recorded("AutoBridge", {})
                object.__setattr__(made, "_from", self._from)
                return made
            return provider
        if name == "with_split":
            return lambda split: self
        if name in ("finalize", "setup", "validate", "register_pre_wrap_hook"):
            return lambda *args, **kwargs: None
        if self._kind != "AutoBridge" and name in DEFAULTS.get(self._kind, {}):
            value = DEFAULTS[self._kind][name]
            value = value() if isinstance(value, type) and value in (list, dict, set) else value
            value = Recorded(value[1], {}) if isinstance(value, tuple) and value[:1] == ("factory",) else value
            object.__setattr__(self, name, value)              # a list that a recipe appends to becomes a setting
            return value
        facts = CHECKPOINT_FACTS.get(self._from, {}) if isinstance(self._from, str) else {}
        if name in facts or name in CORE_DEFAULTS:
            return facts.get(name, CORE_DEFAULTS.get(name))
        if name in DEFAULTS["GPTModelProvider"] and DEFAULTS["GPTModelProvider"][name] is False and self._kind == "AutoBridge":
            return False
        if self._kind == "AutoBridge" and isinstance(self._from, str):
            return OfCheckpoint(self._from, name)
        raise NotRecorded(f"reads {name} of {self._kind}, which the recipe does not set")

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)

    def __call__(self, *args, **kwargs):
        return self

    def __len__(self):
        raise NotRecorded(f"reads the length of {self._from or self._kind}, which is downloaded")

    def fields(self):
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


class Module(types.ModuleType):
    """A package that is not executed: capitalised names are classes, others symbols."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        path = f"{self.__name__}.{name}"
        made = RecordedType(name, (Recorded,), {}) if name[0].isupper() and "_" not in name else Symbol(path)
        if self.__name__ == "torch" and name == "dtype":
            made = RecordedType("dtype", (Recorded,), {})
        setattr(self, name, made)
        return made


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules that recipes import: those of EXECUTED in the wheel, all others as stand-ins."""
    OWN = ("megatron", "torch", "transformers", "nemo_run", "numpy", "PIL", "datasets", "diffusers", "omegaconf")

    def __init__(self, wheel):
        self.wheel = wheel

    def file_of(self, name):
        path = os.path.join(self.wheel, *name.split("."))
        return os.path.join(path, "__init__.py") if os.path.isdir(path) else path + ".py"

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in self.OWN:
            return None
        executed = any(name == one or name.startswith(one + ".") for one in EXECUTED) and name not in COLLECTIONS
        if executed and os.path.exists(self.file_of(name)):
            folder = os.path.dirname(self.file_of(name)) if self.file_of(name).endswith("__init__.py") else None
            return importlib.util.spec_from_file_location(name, self.file_of(name), submodule_search_locations=[folder] if folder else None)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Module(spec.name)

    def exec_module(self, module):
        module.__path__ = []


def class_defaults(wheel):
    """The defaults of fields as the classes of the wheel state them, by class."""
    known = {}
    for folder in ("training", "models", "data", "peft", "diffusion"):
        for base, _, files in sorted(os.walk(os.path.join(wheel, "megatron/bridge", folder))):
            for file in sorted(files):
                if not file.endswith(".py"):
                    continue
                for node in ast.parse(open(os.path.join(base, file)).read()).body:
                    if isinstance(node, ast.ClassDef):
                        known.setdefault(node.name, ([ast.unparse(b) for b in node.bases], own_defaults(node)))

    def collected(name, below=()):
        bases, own = known.get(name, ([], {}))
        merged = {}
        for base in [one.split("[")[0].split(".")[-1] for one in reversed(bases)]:
            if base not in (*below, name):                     # another package's class may have the same name
                merged.update(collected(base, (*below, name)))
        return {**merged, **own}

    return {name: collected(name) for name in known}


def own_defaults(node):
    found = {}
    for item in node.body:
        if not isinstance(item, ast.AnnAssign) or item.value is None or not isinstance(item.target, ast.Name):
            continue
        value = item.value
        if isinstance(value, ast.Call) and ast.unparse(value.func).endswith("field"):
            given = {word.arg: word.value for word in value.keywords}
            if "default_factory" in given:
                factory = ast.unparse(given["default_factory"])
                found[item.target.id] = {"list": list, "dict": dict, "set": set}.get(factory, ("factory", factory))
                continue
            value = given.get("default", value)
        with contextlib.suppress(ValueError):
            found[item.target.id] = ast.literal_eval(value)
    return found


def provider_settings(wheel):
    """The constants that the wheel's converters set on the provider of a model type, whatever the checkpoint's configuration says."""
    found = {}
    for base, _, files in sorted(os.walk(os.path.join(wheel, "megatron/bridge/models"))):
        for file in sorted(files):
            if not file.endswith("_bridge.py"):
                continue
            for node in ast.parse(open(os.path.join(base, file)).read()).body:
                if not isinstance(node, ast.ClassDef):
                    continue
                types_of = [word.value.value for decorator in node.decorator_list if isinstance(decorator, ast.Call)
                            for word in decorator.keywords if word.arg == "model_type" and isinstance(word.value, ast.Constant)]
                makers = [item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "provider_bridge"]
                if not types_of or not makers:
                    continue
                settings = {}
                for item in makers[0].body:                    # assignments under a condition depend on the checkpoint
                    if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Attribute) and \
                            ast.unparse(item.targets[0].value) == "provider":
                        with contextlib.suppress(ValueError):
                            settings[item.targets[0].attr] = plain(ast.literal_eval(item.value))
                found[types_of[0]] = dict(sorted(settings.items()))
    return dict(sorted(found.items()))


def plain(value):
    """The value as JSON."""
    if isinstance(value, OfCheckpoint):
        return OF_CHECKPOINT
    if isinstance(value, Symbol):
        path = value.path
        return path if path.startswith("torch.") else path.rsplit(".", 1)[-1]
    if isinstance(value, Recorded):
        return {"class": value._kind.rsplit(".", 1)[-1], **{name: plain(one) for name, one in sorted(value.fields().items())}}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in sorted(value.items())}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, (set, frozenset)):
        return sorted(plain(one) for one in value)
    if isinstance(value, type):
        return value.__name__
    if callable(value):
        return f"function {getattr(value, '__name__', getattr(getattr(value, 'func', None), '__name__', 'unnamed'))}"
    return os.path.relpath(value) if isinstance(value, str) and value.startswith(os.getcwd() + os.sep) else value


def settings_of(cfg):
    """{"section.field": value} of a configuration, sections and fields sorted."""
    found = {}
    for section, value in cfg.fields().items():
        if section in LEFT_OUT:
            continue
        content = plain(value)
        if section == "peft" and content is not None:
            content = {name: one for name, one in content.items() if name in ("class", "dim", "alpha", "target_modules")}
        if section == "mixed_precision" and isinstance(content, dict):
            content = {name: one for name, one in content.items() if name in ("grad_reduce_in_fp32", "fp8_recipe") or
                       one != DEFAULTS["MixedPrecisionConfig"].get(name)}
        if not isinstance(content, dict):
            if content is not None:
                found[section] = content
            continue
        for name, one in content.items():
            if name == "class" and section != "peft" and not (section == "model" and one != "AutoBridge"):
                continue
            if section in KEPT_OF and name not in KEPT_OF[section]:
                continue
            if section == "optimizer" and re.match(r"lr$|min_lr|adam_|weight_decay|clip_grad|muon_|lion_", name):
                continue
            if one == OF_CHECKPOINT or (name == "tokenizer_model" and cfg.model._from):
                continue                                       # a named model brings its tokenizer
            if isinstance(one, dict) and set(one) == {"class"}:
                one = one["class"]
            found[f"{section}.{name}"] = one
    return dict(sorted(found.items()))


def task_of(name, module, settings):
    if ".perf_recipes." in module:
        return "performance"
    if any(field.startswith("peft") for field in settings):
        return "peft"
    return "sft" if "_sft" in name or "finetune" in name else "pretrain"


PRECISIONS = {"bf16": "bf16", "fp16": "fp16", "fp8cs": "fp8-current", "fp8sc": "fp8-blockwise", "fp8mx": "mxfp8", "nvfp4": "nvfp4"}


def described(name, module, cfg):
    """A recipe's record. GPU, count and precision stand in the function's name: MODEL_TASK_<N>gpu_<GPU>_<precision>[_variant]_config."""
    settings = settings_of(cfg)
    words = re.search(r"_(\d+)gpu_([a-z]+\d+)_([a-z0-9]+?)(?:_|$)", name)
    record = {"model": getattr(cfg.model, "_from", None), "task": task_of(name, module, settings),
              "gpus": int(words[1]) if words else None, "gpu": words[2].upper() if words else None,
              "precision": PRECISIONS.get(words[3]) if words else None, "source": module.removeprefix("megatron.bridge."), "settings": settings}
    return {key: value for key, value in record.items() if value is not None}


def makers(wheel):
    """(module, function) of every function that returns a ConfigContainer and takes no argument that has no default."""
    for root in ("recipes", "perf_recipes"):
        for base, folders, files in sorted(os.walk(os.path.join(wheel, "megatron/bridge", root))):
            for file in sorted(files):
                path = os.path.join(base, file)
                if not file.endswith(".py") or file == "run_plugins.py":
                    continue
                module = os.path.relpath(path, wheel)[:-3].replace(os.sep, ".").removesuffix(".__init__")
                for node in ast.parse(open(path).read()).body:
                    if not isinstance(node, ast.FunctionDef) or node.name.startswith("_") or not node.name.endswith("_config"):
                        continue
                    args = node.args
                    free = len(args.args) - len(args.defaults) + sum(one is None for one in args.kw_defaults)
                    if free == 0 and node.returns is not None and "ConfigContainer" in ast.unparse(node.returns):
                        yield module, node.name


def record_all(wheel):
    recipes, missing = {}, {}
    found = list(makers(wheel))
    modules_of = collections.Counter(name for _, name in found)
    for module, name in found:
        # A performance recipe may have the name of another recipe; its module's root makes the name one.
        key = f"{module.split('.')[2]}/{name}" if modules_of[name] > 1 else name
        key = key.removesuffix("_config")
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                cfg = getattr(importlib.import_module(module), name)()
            if cfg is None or not hasattr(cfg, "_kind"):
                raise NotRecorded("returns nothing")
            recipes[key] = described(name, module, cfg)
        except NotRecorded as error:
            missing[key] = str(error)
        except NotImplementedError:
            missing[key] = "raises NotImplementedError itself"
        except Exception as error:                             # stand-ins that do not go as far as the recipe does
            missing[key] = f"{type(error).__name__}: {error}"
    return recipes, missing


def with_bases(recipes):
    """Moves what most recipes of a family ("perf_recipes.deepseek") agree on into a base; each recipe keeps what differs."""
    bases = {}
    for one in recipes.values():
        one["base"] = ".".join(one["source"].split(".")[:2])
    for family in sorted({one["base"] for one in recipes.values()}):
        of_family = [one["settings"] for one in recipes.values() if one["base"] == family]
        counts = collections.Counter((field, json.dumps(value)) for settings in of_family for field, value in settings.items())
        bases[family] = dict(sorted((field, json.loads(value)) for (field, value), count in counts.items() if 2 * count > len(of_family)))
    for one in recipes.values():
        base, settings = bases[one["base"]], one["settings"]
        without = sorted(set(base) - set(settings))
        one["settings"] = {field: value for field, value in settings.items() if field not in base or
                           json.dumps(base[field]) != json.dumps(value)}
        if without:
            one["without"] = without
    return bases


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("wheel")
    parser.add_argument("--output", help="default: standard output")
    asked = parser.parse_args()
    wheel = os.path.abspath(asked.wheel)
    info = [name for name in os.listdir(wheel) if re.fullmatch(r"megatron_bridge-[\w.]+\.dist-info", name)] if os.path.isdir(wheel) else []
    if not info:
        sys.exit(f"read_bridge_recipes.py: {asked.wheel} holds no megatron_bridge-*.dist-info; give the folder of an unpacked wheel")
    global DEFAULTS
    DEFAULTS = class_defaults(wheel)
    sys.meta_path.insert(0, StandIns(wheel))
    recipes, missing = record_all(wheel)
    kinds = {"GPTModelProvider"} | {one["settings"]["model.class"] for one in recipes.values() if "model.class" in one["settings"]}
    provider = {kind: {name: value for name, value in sorted(DEFAULTS.get(kind, {}).items()) if not name.startswith("_") and
                       (isinstance(value, (bool, int, float, str)) or value is None)} for kind in sorted(kinds)}
    lines = ["{", f'"release": {json.dumps("megatron-bridge " + info[0].split("-")[1].removesuffix(".dist"))},']
    bases = with_bases(recipes)
    for key, table in (("provider_defaults", provider), ("providers", provider_settings(wheel)), ("bases", bases), ("not_recorded", dict(sorted(missing.items()))),
                       ("recipes", dict(sorted(recipes.items())))):
        rows = [f"{json.dumps(name)}: {json.dumps(value, separators=(',', ':'))}" for name, value in table.items()]
        lines.append(f'"{key}": {{' + ("\n" + ",\n".join(rows) + "\n" if rows else "") + "}" + ("," if key != "recipes" else ""))
    text = "\n".join(lines) + "\n}\n"
    json.loads(text)
    if asked.output:
        with open(asked.output, "w") as out:
            out.write(text)
    else:
        sys.stdout.write(text)
    tasks = collections.Counter(one["task"] for one in recipes.values())
    print(f"{len(recipes) + len(missing)} recipes: {len(recipes)} recorded "
          f"({', '.join(f'{task} {count}' for task, count in sorted(tasks.items()))}), {len(missing)} not", file=sys.stderr)


if __name__ == "__main__":
    main()
