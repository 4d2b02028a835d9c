#include "plan/layout/layout_switches.hpp"

#include <algorithm>
#include <array>

namespace mgplan {
namespace {

/// By enumerator.
constexpr std::array<std::string_view, 4> kDispatcherWords{"allgather", "alltoall", "deepep", "hybridep"};
static_assert(static_cast<std::size_t>(TokenDispatcher::hybrid_ep) + 1 == kDispatcherWords.size());

/// By enumerator of DataSharding.
constexpr std::array<std::string_view, 5> kShardingWords{"ddp", "zero1", "zero2", "fsdp", "hsdp"};
static_assert(static_cast<std::size_t>(DataSharding::hybrid) + 1 == kShardingWords.size());

}  // namespace

void apply_switches(const LayoutSwitches& switches, ModelSpec& model, TrainingSpec& training) {
    if (switches.sharding) set_data_sharding_alone(*switches.sharding, training);
    if (switches.dispatcher && model.moe) model.moe->dispatcher = *switches.dispatcher;
    training.overlap_tp = training.overlap_tp || switches.overlap_tp;
    training.overlap_moe = training.overlap_moe || switches.overlap_moe;
    if (switches.bf16_gradients) {
        training.grad_dtype = Dtype::bf16;
        if (training.megatron.fully_sharded.main_grads) training.megatron.fully_sharded.main_grads = Dtype::bf16;
    }
    if (switches.bf16_moments) {
        training.megatron.precision_aware_optimizer = true;
        training.exp_avg_dtype = training.exp_avg_sq_dtype = Dtype::bf16;
    }
}

std::shared_ptr<const LayoutSwitches> switches_beyond(LayoutSwitches switches, const ModelSpec& model, const TrainingSpec& training) {
    if (switches.sharding == data_sharding_choice(training)) switches.sharding.reset();
    if (model.moe && switches.dispatcher == model.moe->dispatcher) switches.dispatcher.reset();
    switches.overlap_tp = switches.overlap_tp && !training.overlap_tp;
    switches.overlap_moe = switches.overlap_moe && !training.overlap_moe;
    switches.bf16_gradients = switches.bf16_gradients && training.grad_dtype != Dtype::bf16;
    switches.bf16_moments = switches.bf16_moments && (training.exp_avg_dtype != Dtype::bf16 || training.exp_avg_sq_dtype != Dtype::bf16);
    return switches == LayoutSwitches{} ? nullptr : std::make_shared<const LayoutSwitches>(switches);
}

std::vector<std::string> switch_words(const LayoutSwitches& switches) {
    std::vector<std::string> words;
    if (switches.sharding) words.push_back(sharding_word(*switches.sharding));
    if (switches.dispatcher) words.emplace_back(dispatcher_word(*switches.dispatcher));
    if (switches.overlap_tp) words.emplace_back("tp-overlap");
    if (switches.overlap_moe) words.emplace_back("moe-overlap");
    if (switches.bf16_gradients) words.emplace_back("bf16-grads");
    if (switches.bf16_moments) words.emplace_back("bf16-moments");
    return words;
}

bool read_switch_word(std::string_view word, LayoutSwitches& switches) {
    if (const auto sharding = parse_sharding_word(word)) {
        switches.sharding = sharding;
        return true;
    }
    if (const auto dispatcher = parse_dispatcher_word(word)) {
        switches.dispatcher = dispatcher;
        return true;
    }
    for (bool LayoutSwitches::*one :
         {&LayoutSwitches::overlap_tp, &LayoutSwitches::overlap_moe, &LayoutSwitches::bf16_gradients, &LayoutSwitches::bf16_moments}) {
        LayoutSwitches alone;
        alone.*one = true;
        if (word != switch_words(alone).front()) continue;
        switches.*one = true;
        return true;
    }
    return false;
}

std::string sharding_word(DataShardingChoice choice) {
    std::string word(kShardingWords[static_cast<std::size_t>(choice.kind)]);
    return choice.kind == DataSharding::hybrid ? word + ":" + std::to_string(choice.replicas) : word;
}

std::optional<DataShardingChoice> parse_sharding_word(std::string_view word) {
    const auto found = std::find(kShardingWords.begin(), kShardingWords.end(), word.substr(0, word.find(':')));
    if (found == kShardingWords.end()) return std::nullopt;
    const std::string_view kind = to_string(static_cast<DataSharding>(found - kShardingWords.begin()));
    return parse_data_sharding(std::string(kind) + std::string(word.substr(found->size())));
}

std::string_view dispatcher_word(TokenDispatcher dispatcher) {
    return kDispatcherWords[static_cast<std::size_t>(dispatcher)];
}

std::optional<TokenDispatcher> parse_dispatcher_word(std::string_view word) {
    const auto found = std::find(kDispatcherWords.begin(), kDispatcherWords.end(), word);
    if (found == kDispatcherWords.end()) return std::nullopt;
    return static_cast<TokenDispatcher>(found - kDispatcherWords.begin());
}

std::vector<std::string> dispatcher_words() {
    return {kDispatcherWords.begin(), kDispatcherWords.end()};
}

std::vector<std::string> overlap_words(const TrainingSpec& training) {
    std::vector<std::string> words;
    if (training.overlap_grad_reduce) words.emplace_back("grad-reduce");
    if (training.overlap_param_gather) words.emplace_back("param-gather");
    if (training.overlap_p2p) words.emplace_back("p2p");
    if (training.overlap_tp) words.emplace_back("tp");
    if (training.overlap_moe) words.emplace_back("moe");
    return words;
}

}  // namespace mgplan
