#include "plan/layout/layout.hpp"

#include <array>

#include <fmt/format.h>

#include "plan/layout/layout_switches.hpp"
#include "plan/text/errors.hpp"

namespace mgplan {
namespace {

// Names in the order of the enumerators; the static_asserts keep enumerators and names from drifting apart.
constexpr std::array<std::string_view, 3> kRecompute{"none", "selective", "full"};
constexpr std::array<std::string_view, 2> kRecomputeMethod{"uniform", "block"};
constexpr std::array<std::string_view, 8> kRecomputeModule{"core_attn",   "mlp", "moe_act",        "layernorm",
                                                           "mla_up_proj", "moe", "shared_experts", "mhc"};
constexpr std::array<std::string_view, 8> kCudaGraphScope{"attn",           "mlp",   "moe",   "moe_router",
                                                          "moe_preprocess", "mamba", "layer", "full_iteration"};
constexpr std::array<std::string_view, 4> kCpCommType{"p2p", "all_gather", "a2a", "a2a+p2p"};
constexpr std::array<std::string_view, 2> kEngine{"mgplan", "megatron"};

static_assert(static_cast<std::size_t>(Recompute::full) + 1 == kRecompute.size());
static_assert(static_cast<std::size_t>(RecomputeMethod::block) + 1 == kRecomputeMethod.size());
static_assert(static_cast<std::size_t>(RecomputeModule::mhc) + 1 == kRecomputeModule.size());
static_assert(static_cast<std::size_t>(CudaGraphScope::full_iteration) + 1 == kCudaGraphScope.size());
static_assert(static_cast<std::size_t>(CpCommType::a2a_p2p) + 1 == kCpCommType.size());
static_assert(static_cast<std::size_t>(Engine::megatron) + 1 == kEngine.size());

template <class Enum, std::size_t size>
std::string_view name_of(Enum value, const std::array<std::string_view, size>& names) {
    const auto index = static_cast<std::size_t>(value);
    MGPLAN_ASSERT(index < size, "an enumerator has a name");
    return names[index];
}

template <class Enum, std::size_t size>
std::optional<Enum> value_of(std::string_view text, const std::array<std::string_view, size>& names) {
    for (std::size_t i = 0; i < size; ++i) {
        if (names[i] == text) return static_cast<Enum>(i);
    }
    return std::nullopt;
}

template <std::size_t size>
std::vector<std::string> all_of(const std::array<std::string_view, size>& names) {
    return {names.begin(), names.end()};
}

template <class Enum, std::size_t size>
std::vector<std::string> members(EnumSet<Enum> set, const std::array<std::string_view, size>& names) {
    std::vector<std::string> found;
    for (std::size_t i = 0; i < size; ++i) {
        if (set.contains(static_cast<Enum>(i))) found.emplace_back(names[i]);
    }
    return found;
}

}  // namespace

Layout without_tail(const Layout& layout) {
    Layout plain = layout;
    plain.recompute = Recompute::none;
    plain.recompute_modules = {};
    plain.recompute_method.reset();
    plain.recompute_num_layers = 0;
    plain.cuda_graphs = {};
    return plain;
}

std::string_view to_string(Recompute value) {
    return name_of(value, kRecompute);
}
std::string_view to_string(RecomputeMethod value) {
    return name_of(value, kRecomputeMethod);
}
std::string_view to_string(RecomputeModule value) {
    return name_of(value, kRecomputeModule);
}
std::string_view to_string(CudaGraphScope value) {
    return name_of(value, kCudaGraphScope);
}
std::string_view to_string(CpCommType value) {
    return name_of(value, kCpCommType);
}
std::string_view to_string(Engine value) {
    return name_of(value, kEngine);
}

std::optional<Recompute> parse_recompute(std::string_view text) {
    return value_of<Recompute>(text, kRecompute);
}
std::optional<RecomputeMethod> parse_recompute_method(std::string_view text) {
    return value_of<RecomputeMethod>(text, kRecomputeMethod);
}
std::optional<RecomputeModule> parse_recompute_module(std::string_view text) {
    return value_of<RecomputeModule>(text, kRecomputeModule);
}
std::optional<CudaGraphScope> parse_cuda_graph_scope(std::string_view text) {
    return value_of<CudaGraphScope>(text, kCudaGraphScope);
}
std::optional<CpCommType> parse_cp_comm_type(std::string_view text) {
    return value_of<CpCommType>(text, kCpCommType);
}
std::optional<Engine> parse_engine(std::string_view text) {
    return value_of<Engine>(text, kEngine);
}

std::vector<std::string> recompute_names() {
    return all_of(kRecompute);
}
std::vector<std::string> recompute_method_names() {
    return all_of(kRecomputeMethod);
}
std::vector<std::string> recompute_module_names() {
    return all_of(kRecomputeModule);
}
std::vector<std::string> cuda_graph_scope_names() {
    return all_of(kCudaGraphScope);
}
std::vector<std::string> cp_comm_type_names() {
    return all_of(kCpCommType);
}
std::vector<std::string> engine_names() {
    return all_of(kEngine);
}

std::vector<std::string> names_in(EnumSet<RecomputeModule> set) {
    return members(set, kRecomputeModule);
}
std::vector<std::string> names_in(EnumSet<CudaGraphScope> set) {
    return members(set, kCudaGraphScope);
}

bool operator==(const Layout& a, const Layout& b) {
    const bool same_split = a.split == b.split || (a.split && b.split && *a.split == *b.split);
    const LayoutSwitches none;
    const bool same_switches = a.switches == b.switches || (a.switches ? *a.switches : none) == (b.switches ? *b.switches : none);
    return same_split && same_switches && a.sizes == b.sizes && a.vpp == b.vpp && a.schedule == b.schedule &&
           a.group_size == b.group_size && a.micro_batch == b.micro_batch && a.num_microbatches == b.num_microbatches &&
           a.sequence_parallel == b.sequence_parallel && a.cp_comm_type == b.cp_comm_type && a.recompute == b.recompute &&
           a.recompute_modules == b.recompute_modules && a.recompute_method == b.recompute_method &&
           a.recompute_num_layers == b.recompute_num_layers && a.cuda_graphs == b.cuda_graphs && a.engine == b.engine;
}

std::string summary(const Layout& layout) {
    const ParallelSizes& sizes = layout.sizes;
    std::string text = fmt::format("tp{} cp{} ep{} etp{} pp{} vpp{} mbs{}", sizes.tp, sizes.cp, sizes.ep, sizes.etp, sizes.pp, layout.vpp,
                                   layout.micro_batch);
    if (layout.schedule) text += fmt::format(" {}", to_string(*layout.schedule));
    if (layout.sequence_parallel) text += " sp";
    text += fmt::format(" {} {}", to_string(layout.cp_comm_type), to_string(layout.recompute));
    if (layout.recompute == Recompute::selective && layout.recompute_modules != EnumSet<RecomputeModule>{RecomputeModule::core_attn})
        text += fmt::format(" {}", fmt::join(names_in(layout.recompute_modules), "+"));
    if (layout.recompute_method == RecomputeMethod::block) text += fmt::format(" block{}", layout.recompute_num_layers);
    if (!layout.cuda_graphs.empty()) text += fmt::format(" graphs={}", fmt::join(names_in(layout.cuda_graphs), "+"));
    if (layout.switches) {
        for (const auto& word : switch_words(*layout.switches)) text += " " + word;
    }
    return text;
}

}  // namespace mgplan
