#include <algorithm>
#include <array>

#include <fmt/core.h>

#include "formats/trainers/trainer.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

// Source: inclusionAI/AReaL 4aef98d8d: areal/api/alloc_mode.py (the grammar of "megatron:d4p1t1" and
// "megatron:(attn:d1p12t4|ffn:d1p12e4)"), areal/api/cli_args.py (defaults of MegatronEngineConfig), areal/engine/megatron_engine.py.

namespace mgplan::formats {
namespace {

/// Sizes of the letters d, t, p, c and e; 0: not stated.
struct Dimensions {
    std::array<std::int64_t, 5> sizes{};
    [[nodiscard]] std::int64_t of(char letter) const { return std::max<std::int64_t>(1, sizes[kLetters.find(letter)]); }
    [[nodiscard]] bool states(char letter) const { return sizes[kLetters.find(letter)] > 0; }
    static constexpr std::string_view kLetters = "dtpce";
};

Dimensions dimensions_in(std::string_view text) {
    Dimensions found;
    for (std::size_t at = 0; at < text.size();) {
        const auto letter = Dimensions::kLetters.find(text[at]);
        std::size_t end = at + 1;
        while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
        const auto size = parse_integer(text.substr(at + 1, end - at - 1));
        if (letter == std::string_view::npos || !size || *size < 1 || *size > (1 << 20))
            throw ConfigError(fmt::format("'{}' is no allocation of AReaL; write letters with sizes, as in d4p2t2", text.substr(0, 60)));
        found.sizes[letter] = *size;
        at = end;
    }
    return found;
}

/// The part of an allocation after "megatron:"; "" where it does not train with Megatron-core.
std::string training_part(const Settings& settings) {
    std::string text = settings.get("actor.backend").value_or(settings.get("allocation_mode").value_or(""));
    const auto at = text.find("megatron:");
    if (at == std::string::npos) return "";
    text = text.substr(at + std::string_view("megatron:").size());
    return text.substr(0, text.find_first_of("+ "));
}

void add_layout(const std::string& text, TrainerJob& job) {
    std::string plain = text;
    std::erase_if(plain, [](char c) { return c == '(' || c == ')'; });
    const auto bar = plain.find('|');
    const auto part = [](std::string_view one) { return one.substr(one.find(':') + 1); };  // npos + 1 is 0
    const Dimensions attention = dimensions_in(part(std::string_view(plain).substr(0, bar)));
    const Dimensions experts = bar == std::string::npos ? attention : dimensions_in(part(std::string_view(plain).substr(bar + 1)));
    job.fields["tensor_model_parallel_size"] = std::to_string(attention.of('t'));
    job.fields["pipeline_model_parallel_size"] = std::to_string(attention.of('p'));
    job.fields["context_parallel_size"] = std::to_string(attention.of('c'));
    job.fields["expert_model_parallel_size"] = std::to_string(experts.of('e'));
    // Stated for experts alone; 1 otherwise (alloc_mode.py).
    job.fields["expert_tensor_parallel_size"] = std::to_string(bar == std::string::npos ? 1 : experts.of('t'));
    job.fields["sequence_parallel"] = attention.of('t') > 1 ? "True" : "False";
    if (!job.world)
        job.world = attention.of('d') * attention.of('t') % (1 << 24) * attention.of('p') % (1 << 24) * attention.of('c') % (1 << 24);
}

constexpr std::array kArealComputed{TrainerSetting{"t of the allocation", "tensor_model_parallel_size"},
                                    TrainerSetting{"p of the allocation", "pipeline_model_parallel_size"},
                                    TrainerSetting{"c of the allocation", "context_parallel_size"},
                                    TrainerSetting{"e of the allocation", "expert_model_parallel_size"},
                                    TrainerSetting{"t of the experts' allocation", "expert_tensor_parallel_size"},
                                    TrainerSetting{"actor.mb_spec.max_tokens_per_mb", "seq_length"}};

}  // namespace

const Trainer kAreal{
    .framework = "AReaL",
    .source = "inclusionAI/AReaL 4aef98d8d",
    .sections = "actor.megatron actor.megatron.ddp",
    .computed = kArealComputed,
    .fixed =
        "bias_activation_fusion=False bias_dropout_fusion=False apply_rope_fusion=False gradient_accumulation_fusion=False bf16=True "
        "grad_reduce_in_fp32=True use_distributed_optimizer=True moe_token_dispatcher_type=alltoall moe_grouped_gemm=True "
        "recompute_granularity=full recompute_method=uniform recompute_num_layers=1",
    .own =
        "ddp wrap_with_ddp use_torch_fsdp2 use_custom_fsdp use_deterministic_algorithms async_save use_checkpoint_opt_param_scheduler "
        "fp8_config use_mbridge_save use_mbridge",
    .model = "actor.path",
    .reads = [](const Settings& settings) { return !training_part(settings).empty() && !settings.is_true("actor.use_lora"); },
    .finish =
        [](const Settings& settings, TrainerJob& job) {
            add_layout(training_part(settings), job);
            if (settings.has_below("actor.megatron.fp8_config.")) job.fields["fp8_config"] = "True";  // no flag: leaves the verdict open
            if (!settings.is_true("actor.gradient_checkpointing"))
                for (const char* field : {"recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_modules"})
                    job.fields.erase(field);
            // Packs of a number of tokens: as sequences of that length.
            if (const auto tokens = settings.whole("actor.mb_spec.max_tokens_per_mb"); tokens && *tokens > 0)
                job.fields["seq_length"] = std::to_string(*tokens);
            job.fields["micro_batch_size"] = "1";
            job.notes.emplace_back(
                "one update of the actor, packs of the most tokens of a microbatch: generation and reference not planned; the number of "
                "packs "
                "follows from the lengths, --global-batch gives it");
        },
    .reads_model = "by name",
    .reads_layout = "yes",
    .reads_batch = "packs; --global-batch",
    .reads_precision = "bf16",
    .reads_recompute = "yes",
    .reads_optimizer = "yes"};

}  // namespace mgplan::formats
