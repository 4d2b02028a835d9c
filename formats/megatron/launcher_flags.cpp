#include "formats/megatron/launcher_flags.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "formats/megatron/megatron_flags.hpp"
#include "formats/recognise/recognise.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

struct Launcher {
    std::string_view framework;
    std::string_view set;         ///< flags that its code sets, without values; separated by blanks
    std::string_view set_valued;  ///< flags with a value, "seq-length=4096": its defaults
    std::string_view dropped;     ///< its own flags that change no prediction; "vllm-*": all that begin so
};

/// Flags of slime and miles (utils/arguments.py) for what happens outside the update of the actor: rollouts, rewards, evaluations, weights
/// that go to the engines, and the weights of the loss. Models on the host (--ref-load, --keep-old-actor) take the actor's place in turn.
constexpr std::string_view kOfRollouts =
    "actor-num-nodes actor-num-gpus-per-node num-gpus-per-node advantage-estimator apply-chat-template apply-chat-template-kwargs "
    "balance-data buffer-filter-path check-weight-update-equal ci-* colocate custom-advantage-function-path custom-config-path "
    "custom-convert-* custom-eval-* custom-generate-* custom-reward-* custom-rm-path custom-rollout-* custom-tis-* data-source-path "
    "disable-compute-advantages-and-returns disable-grpo-std-normalization disable-rewards-normalization disable-rollout-* "
    "disable-wandb-random-suffix dump-details dynamic-sampling-* entropy-coef eps-clip eps-clip-c eps-clip-high eval-* fetch-* "
    "fully-async gamma get-mismatch-metrics group-rm hf-checkpoint http-proxy input-key keep-old-actor kl-coef kl-loss-coef kl-loss-type "
    "label-key lambd load-debug-* log-correct-samples log-multi-turn log-passrate log-probs-* log-reward-category loss-mask-type "
    "mask-offpolicy-in-partial-rollout megatron-to-hf-mode metadata-key min-batch-collection-ratio multimodal-keys n-samples-* "
    "normalize-advantages num-critic-only-steps num-epoch num-rollout num-steps-per-rollout offload offload-* opsm-delta "
    "over-sampling-* partial-rollout prompt-data ref-* reset-optimizer-states reward-key rm-* rollout-* save-debug-* save-hf sglang-* "
    "skip-eval-* start-rollout-id tb-* tis-* tool-key train-env-vars update-weight* use-distributed-post use-fault-tolerance use-kl-loss "
    "use-miles-router use-opsm use-rollout-* use-routing-replay use-tis use-unbiased-kl value-clip wandb-*";

// Sources: _set_default_megatron_args in slime/backends/megatron_utils/arguments.py of THUDM/slime (1cddc5d3), which miles has, too;
// class MegatronArguments in swift/megatron/arguments/megatron_args.py of modelscope/ms-swift (006938be), whose flags --model and
// --max_length stand for the checkpoint's sizes and the length. Both were read in November 2026.
constexpr std::array kLaunchers{
    Launcher{"slime", "bf16 use-distributed-optimizer", "seq-length=4096 micro-batch-size=1", kOfRollouts},
    Launcher{"miles", "bf16 use-distributed-optimizer", "seq-length=4096 micro-batch-size=1", kOfRollouts},
    Launcher{"ms-swift", "bf16 use-distributed-optimizer moe-grouped-gemm",
             "recompute-granularity=selective micro-batch-size=1 global-batch-size=16 expert-tensor-parallel-size=1 "
             "moe-token-dispatcher-type=alltoall moe-router-dtype=fp32",
             "model model-type load template dataset cached-dataset system tuner-type train-type torch-dtype num-workers dataset-num-proc "
             "dataloader-num-workers load-from-cache-file split-dataset-ratio max-epochs num-train-epochs save-interval save-steps "
             "eval-steps logging-steps cached-val-dataset padding-free group-by-length save-strategy use-hf model-author model-name "
             "output-dir add-version merge-lora no-save-optim no-save-rng "
             "save-safetensors load-safetensors packing packing-cache streaming loss-scale freeze-vit freeze-aligner "
             "vit-gradient-checkpointing vit-gradient-checkpointing-kwargs vit-lr aligner-lr model-kwargs report-to stream load-data-args "
             "save-total-limit truncation-strategy enable-thinking add-non-thinking-prefix"}};

/// Flags of ms-swift that say, next to --rlhf_type, how responses are made and judged and the loss is weighted.
constexpr std::string_view kOfPreferences =
    "beta rpo-alpha loss-type sft-alpha "
    "desirable-weight undesirable-weight center-rewards-coefficient use-vllm vllm-* sleep-level reward-funcs temperature top-p top-k "
    "log-completions log-rollout-offpolicy-metrics epsilon epsilon-high tau-pos tau-neg dynamic-sample overlong-filter "
    "importance-sampling-level external-plugins num-generations steps-per-generation multi-turn-scheduler max-turns offload-bridge "
    "lmbda gkd-logits-topk";

std::string spelled(const std::string& word) {
    std::string flag = word.substr(0, word.find('='));
    std::replace(flag.begin(), flag.end(), '_', '-');
    return flag;
}

bool states(const std::vector<std::string>& words, const std::string& flag) {
    return std::any_of(words.begin(), words.end(),
                       [&flag](const std::string& word) { return word.starts_with("--") && spelled(word) == flag; });
}

/// The value of the flag; "" where no word states it.
std::string value_of(const std::vector<std::string>& words, std::string_view flag) {
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (!words[i].starts_with("--") || spelled(words[i]) != flag) continue;
        const auto equals = words[i].find('=');
        return equals != std::string::npos ? words[i].substr(equals + 1) : i + 1 < words.size() ? words[i + 1] : "";
    }
    return "";
}

/// True for `--optimizer muon`, with which ms-swift switches the distributed optimizer off (_check_muon).
bool takes_muon(const std::vector<std::string>& words) {
    return value_of(words, "--optimizer").find("muon") != std::string::npos;
}

/// The tuner of a command of ms-swift (--tuner_type, earlier --train_type): "" where none is named, which trains all weights.
std::string tuner_of(const std::vector<std::string>& words) {
    const std::string tuner = value_of(words, "--tuner-type");
    return tuner.empty() ? value_of(words, "--train-type") : tuner;
}

/// Switches that ms-swift 4 has on or off where Megatron-LM's command line has them the other way round: flag, and ms-swift's field.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kSwitchesOfSwift{
    {{"cross-entropy-loss-fusion", "cross-entropy-loss-fusion"}, {"no-rope-fusion", "apply-rope-fusion"}}};

/// Fields of ms-swift that say true or false, as switches of Megatron-LM: --masked_softmax_fusion false is --no-masked-softmax-fusion.
std::vector<std::string> as_switches(const std::vector<std::string>& words) {
    std::vector<std::string> kept;
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string flag = words[i].starts_with("--") ? spelled(words[i]).substr(2) : "";
        const auto equals = words[i].find('=');
        const bool apart = equals == std::string::npos;
        const std::string value = lower_case(!apart ? words[i].substr(equals + 1) : i + 1 < words.size() ? words[i + 1] : "");
        const std::string name = flag == "apply-rope-fusion"        ? "rope-fusion"
                                 : flag == "bias-activation-fusion" ? "bias-swiglu-fusion"
                                                                    : flag;
        const bool bare = apart && (value.empty() || value.starts_with("--"));  // true
        if (flag.empty() || (value != "true" && value != "false" && !bare) || find_flag(name) || !find_flag("no-" + name)) {
            kept.push_back(words[i]);
            continue;
        }
        if (value == "false") kept.push_back("--no-" + name);
        i += apart && !bare ? 1 : 0;
    }
    return kept;
}

/// The words without the flags of that list, and their values; a flag of ms-swift's length under Megatron-LM's name.
std::vector<std::string> renamed(const std::vector<std::string>& words, const Launcher& launcher, bool adapters) {
    auto dropped = split(launcher.dropped, ' ');
    const bool swift = launcher.framework == "ms-swift";
    // Its class has these flags whatever is trained.
    if (swift && !adapters) {
        for (const char* flag : {"lora-rank", "lora-alpha", "target-modules", "lora-dropout"}) dropped.emplace_back(flag);
    }
    if (swift && states(words, "--rlhf-type")) {
        for (std::string& flag : split(kOfPreferences, ' ')) dropped.push_back(std::move(flag));
    }
    if (swift && value_of(words, "--recompute-granularity") == "none") dropped.emplace_back("recompute-granularity");
    if (swift && value_of(words, "--freeze-llm") == "false") dropped.emplace_back("freeze-llm");  // its default
    std::vector<std::string> kept;
    bool drops = false;
    for (const std::string& word : words) {
        if (word.starts_with("--")) {
            const std::string flag = spelled(word);
            drops = std::any_of(dropped.begin(), dropped.end(), [name = flag.substr(2)](const std::string& one) {
                return one.ends_with('*') ? name.starts_with(one.substr(0, one.size() - 1)) : name == one;
            });
            const std::string_view now = !swift || drops              ? ""
                                         : flag == "--max-length"     ? "--seq-length"
                                         : flag == "--target-modules" ? "--lora-target-modules"
                                                                      : "";
            if (!now.empty()) {
                kept.push_back(std::string(now) + word.substr(flag.size()));
                continue;
            }
        }
        if (!drops) kept.push_back(word);
    }
    return kept;
}

/// A flag's whole number from 1 to 2^31; 0 for others.
std::int64_t count_of(const std::vector<std::string>& words, std::string_view flag) {
    const auto count = parse_integer(value_of(words, flag));
    return count && *count >= 1 && *count <= (std::int64_t{1} << 31) ? *count : 0;
}

/// Turns the rollouts of slime and miles into a batch of sequences of the longest length, one in each microbatch. Packs of
/// --max-tokens-per-gpu tokens for each rank of cp (utils/dp_schedule.py) that hold more of them stay among the flags as not computed.
/// Returns the sentence on it; "" where no length is stated.
std::string take_rollouts(std::vector<std::string>& words) {
    const std::int64_t response = count_of(words, "--rollout-max-response-len"), prompt = count_of(words, "--rollout-max-prompt-len"),
                       context = count_of(words, "--rollout-max-context-len");
    const bool packs = states(words, "--use-dynamic-batch-size");
    const std::int64_t cp = std::clamp<std::int64_t>(count_of(words, "--context-parallel-size"), 1, 1 << 20);
    const std::int64_t pack = packs ? count_of(words, "--max-tokens-per-gpu") * cp : 0;
    std::int64_t longest = response + prompt;
    if (context > 0 && (longest == 0 || context < longest)) longest = context;
    if (longest == 0) longest = pack;
    if (longest == 0) return "";
    std::vector<std::pair<std::string, std::int64_t>> set{{"--seq-length", longest}};
    if (packs) set.emplace_back("--micro-batch-size", 1);
    const std::int64_t steps = count_of(words, "--num-steps-per-rollout"), prompts = count_of(words, "--rollout-batch-size"),
                       samples = std::max<std::int64_t>(count_of(words, "--n-samples-per-prompt"), 1);
    if (steps > 0 && prompts > 0) set.emplace_back("--global-batch-size", std::max<std::int64_t>(prompts * samples / steps, 1));
    std::vector<std::string> kept;
    bool drops = false;
    for (const std::string& word : words) {
        if (word.starts_with("--")) {
            const std::string flag = spelled(word);
            drops = (flag == "--max-tokens-per-gpu" && pack < 2 * longest) ||
                    std::ranges::any_of(set, [&flag](const auto& one) { return one.first == flag; });
        }
        if (!drops) kept.push_back(word);
    }
    for (const auto& [flag, value] : set) kept.push_back(fmt::format("{}={}", flag, value));
    words = std::move(kept);
    return fmt::format("one update of the actor, sequences of the longest length ({} tokens{}): generation and reference not planned",
                       longest, response > 0 && prompt == 0 && context == 0 ? " of the answer, prompts left out" : "");
}

}  // namespace

void add_launcher_flags(ArgumentWords& found, std::string_view text, const std::optional<ModelSpec>& model) {
    const auto seen = recognise(text);
    if (!seen) return;
    const auto launcher =
        std::find_if(kLaunchers.begin(), kLaunchers.end(), [&seen](const Launcher& one) { return one.framework == seen->framework; });
    if (launcher == kLaunchers.end()) return;
    const bool swift = launcher->framework == "ms-swift";
    const std::string tuner = swift ? tuner_of(found.words) : "";
    const bool adapters = tuner == "lora" || tuner == "lora_llm";
    if (swift && tuner.empty() && states(found.words, "--lora-rank"))
        found.assumptions.emplace_back("all weights are trained: ms-swift reads --lora_rank with --tuner_type lora alone");
    const std::vector<std::string> stated = found.words;
    std::vector<std::string> added;
    if (const std::string rollouts = swift ? "" : take_rollouts(found.words); !rollouts.empty()) found.assumptions.push_back(rollouts);
    for (const auto& [flag, field] : kSwitchesOfSwift) {
        if (swift && seen->version != "3" && !states(found.words, fmt::format("--{}", field)) &&
            !states(found.words, fmt::format("--{}", flag)))
            added.push_back(fmt::format("--{}", flag));
    }
    // get_mcore_model_config: grouped products of experts with biases do not go with that fusion.
    if (swift && model && model->moe && model->mlp_bias) added.emplace_back("--no-bias-dropout-fusion");
    found.words = renamed(swift ? as_switches(found.words) : found.words, *launcher, adapters);
    for (const std::string& name : split(launcher->set, ' ')) {
        const std::string flag = "--" + name;
        if (states(found.words, flag) || (name == "bf16" && states(found.words, "--fp16"))) continue;
        if (name == "use-distributed-optimizer" && launcher->framework == "ms-swift" && takes_muon(found.words)) continue;
        added.push_back(flag);
    }
    const std::string of_adapters = adapters ? " lora-rank=8 lora-alpha=32 lora-target-modules=all-linear" : "";
    for (const std::string& setting : split(std::string(launcher->set_valued) + of_adapters, ' ')) {
        if (setting.empty()) continue;
        const auto equals = setting.find('=');
        const std::string flag = "--" + setting.substr(0, equals);
        if (states(found.words, flag) || states(stated, flag)) continue;
        added.push_back(fmt::format("{}={}", flag, setting.substr(equals + 1)));
    }
    found.words.insert(found.words.end(), added.begin(), added.end());
    found.launcher = seen->framework;
    const std::string_view release = swift && seen->version != "3" ? " 4" : "";
    if (!added.empty()) found.assumptions.push_back(fmt::format("{} (set by {}{})", fmt::join(added, " "), found.launcher, release));
}

}  // namespace mgplan::formats
