// Feed-forwards in checkpoints: gates and values, experts one by one and stacked, and the parts that follow them.

#include <fmt/format.h>

#include "formats/hugging_face/layer_weights.hpp"

namespace mgplan::formats {
namespace {

const Mixture& mixture_of(const LayerWeights& at) {
    return std::get<Mixture>(*at.layer.feed_forward);
}

/// The first product: gates, then values.
void place_gate_and_up(const LayerWeights& at, PublishedParameter& entry, const std::string& module, bool is_bias, std::string_view both,
                       std::string_view gate, std::string_view up) {
    const bool gated = std::visit([](const auto& kind) { return kind.gated; }, *at.layer.feed_forward);
    if (!gated) return at.pieces.is_linear(entry, module + std::string(up), is_bias);
    if (!both.empty()) return at.pieces.is_linear(entry, module + std::string(both), is_bias);
    for (const auto part : {gate, up})
        at.pieces.append_rows(entry, at.pieces.linear(module + std::string(part), entry.rows / 2, entry.columns, is_bias), 0,
                              entry.rows / 2);
}

bool place_mlp(const LayerWeights& at, PublishedParameter& entry, std::string_view rest) {
    const std::string module = at.prefix + std::string(at.names.mlp), shared = at.prefix + std::string(at.names.shared);
    if (const auto what = rest_behind(rest, "mlp.linear_fc1"))
        return place_gate_and_up(at, entry, module, *what == ".bias", at.names.gate_and_up, at.names.gate, at.names.up), true;
    if (const auto what = rest_behind(rest, "mlp.linear_fc2"))
        return at.pieces.is_linear(entry, module + std::string(at.names.down), *what == ".bias"), true;
    if (const auto what = rest_behind(rest, "mlp.activation_func."))
        return at.pieces.is(entry, fmt::format("{}act_fn.{}", module, *what)), true;
    if (rest == "mlp.shared_experts.linear_fc1.weight")
        return place_gate_and_up(at, entry, shared, false, at.names.shared_gate_and_up, "gate_proj", "up_proj"), true;
    if (rest == "mlp.shared_experts.linear_fc2.weight")
        return at.pieces.is(entry, shared + std::string(at.names.shared_down) + ".weight"), true;
    if (rest == "mlp.shared_experts.gate_weight")
        return at.pieces.is(entry, fmt::format("{}{}.weight", at.prefix, at.names.shared_gate), {1, entry.columns}), true;
    return false;
}

void place_joined_rows(const LayerWeights& at, PublishedParameter& entry, const std::string& module, std::int64_t expert, bool first) {
    const std::int64_t width = mixture_of(at).expert_ffn, columns = first ? entry.columns : entry.rows;
    const std::int64_t all = mixture_of(at).experts * width, begin = expert * width * columns;
    if (!first)
        return at.pieces.append(
            entry, {at.pieces.tensor(module + std::string(at.names.stacked_last), {all, columns}), begin, 1, columns, 0, entry.rows});
    for (const auto part : {at.names.stacked_first, at.names.stacked_up})
        at.pieces.append(entry, {at.pieces.tensor(module + std::string(part), {all, columns}), begin, columns, 1, 0, width});
}

void place_stacked(const LayerWeights& at, PublishedParameter& entry, const std::string& name, std::int64_t expert, bool first,
                   bool is_bias) {
    const std::int64_t rows = entry.rows, columns = entry.columns, experts = mixture_of(at).experts;
    const bool by_rows = is_bias || at.names.expert_rows == ExpertRows::stacked;
    const std::vector<std::int64_t> shape = is_bias   ? std::vector{experts, rows}
                                            : by_rows ? std::vector{experts, rows, columns}
                                                      : std::vector{experts, columns, rows};
    const std::size_t all = at.pieces.tensor(is_bias ? name + "_bias" : name, shape);
    const std::int64_t begin = expert * rows * columns, row_step = by_rows ? columns : 1, column_step = by_rows ? 1 : rows;
    if (!first || at.names.expert_rows != ExpertRows::stacked_pairs)
        return at.pieces.append(entry, {all, begin, row_step, column_step, 0, rows});
    for (const std::int64_t part : {0, 1}) at.pieces.append(entry, {all, begin + part * row_step, 2 * row_step, column_step, 0, rows / 2});
}

bool place_mixture(const LayerWeights& at, PublishedParameter& entry, std::string_view rest) {
    const std::string module = at.prefix + std::string(at.names.mixture);
    if (const auto what = rest_behind(rest, "mlp.router."))
        return at.pieces.is(entry, fmt::format("{}{}.{}", module, at.names.router, *what)), true;
    for (const std::string_view map : {"fc1_latent_proj.weight", "fc2_latent_proj.weight"}) {
        if (rest_behind(rest, "mlp.") == map) return at.pieces.is(entry, module + std::string(map)), true;
    }
    for (const bool first : {true, false}) {
        const auto numbered = rest_behind(rest, first ? "mlp.experts.linear_fc1." : "mlp.experts.linear_fc2.");
        if (!numbered) continue;
        const bool is_bias = numbered->starts_with("bias");
        const std::int64_t expert = std::stoll(std::string(numbered->substr(is_bias ? 4 : 6)));
        if (at.names.expert_rows == ExpertRows::each) {
            const std::string own = fmt::format("{}{}{}.", module, at.names.experts, expert);
            if (first)
                place_gate_and_up(at, entry, own, is_bias, {}, at.names.expert_gate, at.names.expert_up);
            else
                at.pieces.is_linear(entry, own + std::string(at.names.expert_down), is_bias);
        } else if (at.names.expert_rows == ExpertRows::joined_rows) {
            place_joined_rows(at, entry, module, expert, first);
        } else {
            place_stacked(at, entry, module + std::string(first ? at.names.stacked_first : at.names.stacked_last), expert, first, is_bias);
        }
        return true;
    }
    return false;
}

}  // namespace

bool place_feed_forward(const LayerWeights& at, PublishedParameter& entry, std::string_view name) {
    return place_mlp(at, entry, name) || place_mixture(at, entry, name);
}

}  // namespace mgplan::formats
