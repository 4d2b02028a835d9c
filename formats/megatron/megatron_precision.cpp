#include <algorithm>
#include <array>
#include <string_view>

#include "formats/megatron/flag_rows.hpp"

// Types of products, parameters and gradients.

namespace mgplan::formats {
namespace {

bool is_fp8(const Job& job) {
    return job.training->precision == Precision::fp8;
}

void read_storage(FlagReader& flags, Job& job) {
    const bool bf16 = flags.has("--bf16"), fp16 = flags.has("--fp16");
    if (bf16 && fp16) flags.problem("--bf16 and --fp16 exclude each other; keep one");
    job.training->precision = bf16 ? Precision::bf16 : fp16 ? Precision::fp16 : Precision::fp32;
}

void write_storage(FlagWriter& out, const Job& job) {
    switch (job.training->precision) {
        case Precision::fp64:
            throw ConfigError(
                "plan: precision = fp64, in which Megatron-LM does not train; plan with --precision bf16, fp16, fp32 or fp8 to export");
        case Precision::fp32:
            return;
        case Precision::fp16:
            return out.flag("fp16");
        case Precision::bf16:
        case Precision::fp8:
        case Precision::nvfp4:
            return out.flag("bf16");
    }
}

void read_fp8_format(FlagReader& flags, Job& job) {
    const auto format = flags.text("--fp8-format");
    if (!format || *format == "none") return;
    if (!flags.has("--bf16")) flags.not_computed("--fp8-format", "fp8 over weights that are not bf16, predicted over bf16", Decides::fit);
    job.training->precision = Precision::fp8;
    job.training->megatron.fp8_gradients_in_e4m3 = *format == "e4m3";
}

void write_fp8_format(FlagWriter& out, const Job& job) {
    if (is_fp8(job)) out.word("fp8-format", job.training->megatron.fp8_gradients_in_e4m3 ? "e4m3" : "hybrid");
}

void read_fp4_format(FlagReader& flags, Job& job) {
    const auto format = flags.text("--fp4-format");
    if (!format || *format == "none") return flags.idle("--fp4-recipe");
    if (is_fp8(job)) flags.problem("--fp4-format and --fp8-format exclude each other; keep one");
    if (!flags.has("--bf16")) flags.not_computed("--fp4-format", "fp4 over weights that are not bf16, predicted over bf16", Decides::fit);
    if (flags.text("--fp4-recipe").value_or("nvfp4") != "nvfp4")
        flags.not_computed("--fp4-recipe", "quantization of one's own, predicted as nvfp4", Decides::fit);
    job.training->precision = Precision::nvfp4;
}

void write_fp4_format(FlagWriter& out, const Job& job) {
    if (job.training->precision != Precision::nvfp4) return;
    out.word("fp4-format", "e2m1");
    out.word("fp4-recipe", "nvfp4");
}

void read_quantised_parameters(FlagReader& flags, Job& job) {
    TrainingSpec& training = *job.training;
    training.fp8_parameters = quantised(training.precision) && flags.has(is_fp8(job) ? "--fp8-param-gather" : "--fp4-param-gather");
}

void write_quantised_parameters(FlagWriter& out, const Job& job) {
    const TrainingSpec& training = *job.training;
    if (quantised(training.precision) && training.fp8_parameters) out.flag(is_fp8(job) ? "fp8-param-gather" : "fp4-param-gather");
}

/// --first-last-layers-bf16 and how many layers they are. Rules: transformer_config.py, __post_init__, at d98e8a64.
void read_layers_in_bf16(FlagReader& flags, Job& job) {
    TrainingSpec& training = *job.training;
    constexpr std::string_view kSwitch = "--first-last-layers-bf16", kStart = "--num-layers-at-start-in-bf16",
                               kEnd = "--num-layers-at-end-in-bf16";
    const std::int64_t start = flags.integer_or(kStart, 1, 0, ModelLimits::layers), end = flags.integer_or(kEnd, 1, 0, ModelLimits::layers);
    if (!flags.has(kSwitch) || !quantised(training.precision)) {
        // All layers are in bf16 then, including those that the flags name.
        for (const std::string_view flag : {kStart, kEnd}) flags.idle(flag);
        return;
    }
    if (training.precision == Precision::fp8) {
        if (training.megatron.fp8_recipe == Fp8Recipe::delayed)
            flags.problem("{} does not go with --fp8-recipe delayed, which is the default; name another recipe, or remove it", kSwitch);
        const std::int64_t stages = job.layout->pp, most = job.model.layers / stages;
        for (const auto& [flag, layers] : {std::pair(kStart, start), std::pair(kEnd, end)}) {
            if (layers > most)
                flags.problem("{} = {} is more than the {} layers of a pipeline stage; use at most that", flag, layers, most);
        }
    }
    training.megatron.bf16_layers_at_start = std::min(start, job.model.layers);
    training.megatron.bf16_layers_at_end = std::min(end, job.model.layers);
}

void write_layers_in_bf16(FlagWriter& out, const Job& job) {
    const MegatronSwitches& switches = job.training->megatron;
    if (!quantised(job.training->precision) || switches.bf16_layers_at_start + switches.bf16_layers_at_end == 0) return;
    out.flag("first-last-layers-bf16");
    out.integer("num-layers-at-start-in-bf16", switches.bf16_layers_at_start);
    out.integer("num-layers-at-end-in-bf16", switches.bf16_layers_at_end);
}

/// bf16 accumulates gradients in fp32 by default; fp16 only if a flag says so.
void read_gradients(FlagReader& flags, Job& job) {
    const bool bf16 = flags.has("--bf16"), fp16 = flags.has("--fp16") && !bf16;
    const Dtype main = flags.choice<Dtype>("--main-grads-dtype", Dtype::fp32, {{"fp32", Dtype::fp32}, {"bf16", Dtype::bf16}});
    if (main != Dtype::fp32 && !flags.has("--use-precision-aware-optimizer"))
        flags.problem("--main-grads-dtype {} needs --use-precision-aware-optimizer; add it, or leave --main-grads-dtype out",
                      to_string(main));
    bool in_fp32 = flags.has("--accumulate-allreduce-grads-in-fp32");
    if (bf16 && in_fp32 && main != Dtype::fp32)
        flags.problem("--main-grads-dtype bf16 does not go with --accumulate-allreduce-grads-in-fp32; leave one of them out");
    if (bf16) in_fp32 = !flags.has("--grad-reduce-in-bf16") && (in_fp32 || main == Dtype::fp32);
    job.training->grad_dtype = in_fp32 || (!bf16 && !fp16) ? Dtype::fp32 : fp16 ? Dtype::fp16 : Dtype::bf16;
}

void write_gradients(FlagWriter& out, const Job& job) {
    const TrainingSpec& training = *job.training;
    if (training.precision == Precision::fp32) return;
    if (training.grad_dtype == Dtype::fp32)
        out.flag("accumulate-allreduce-grads-in-fp32");
    else
        out.flag_if(training.precision != Precision::fp16, "grad-reduce-in-bf16");
}

constexpr std::array<std::pair<std::string_view, Fp8Recipe>, 5> kRecipes{{{"delayed", Fp8Recipe::delayed},
                                                                          {"tensorwise", Fp8Recipe::tensorwise},
                                                                          {"blockwise", Fp8Recipe::blockwise},
                                                                          {"mxfp8", Fp8Recipe::mxfp8},
                                                                          {"custom", Fp8Recipe::tensorwise}}};

constexpr std::array kPrecisionFlags{
    FlagRow{"bf16 fp16", Both{read_storage, write_storage}},
    FlagRow{"fp8-format=", Both{read_fp8_format, write_fp8_format}},
    FlagRow{"fp8-recipe", Word<Fp8Recipe>{MGPLAN_FIELD(training->megatron.fp8_recipe), Fp8Recipe::delayed, kRecipes}, Written::always,
            is_fp8},
    FlagRow{"fp4-format= fp4-recipe=", Both{read_fp4_format, write_fp4_format}},
    FlagRow{"fp8-param-gather fp4-param-gather", Both{read_quantised_parameters, write_quantised_parameters}},
    FlagRow{"first-last-layers-bf16 num-layers-at-start-in-bf16= num-layers-at-end-in-bf16=",
            Both{read_layers_in_bf16, write_layers_in_bf16}},
    FlagRow{"accumulate-allreduce-grads-in-fp32 grad-reduce-in-bf16 main-grads-dtype=", Both{read_gradients, write_gradients}},
};

}  // namespace

constinit const FlagTopic kPrecisionTopic{kPrecisionFlags};

void read_precision(FlagReader& flags, Job& job) {
    read_topic(flags, kPrecisionTopic, job);
    if (flags.raw("--fp8-recipe") == "custom")
        flags.not_computed("--fp8-recipe", "quantization of one's own, predicted as tensorwise", Decides::fit);
}

}  // namespace mgplan::formats
