#include "model/layers/initialization.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "model/ops/elementwise.hpp"
#include "model/ops/normal_values.hpp"
#include "model/ops/philox.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {
namespace {

std::uint64_t hash_of(std::string_view text) {
    std::uint64_t hash = 1469598103934665603ULL;  // FNV-1a
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
    return hash;
}

/// A value that is not normal, drawn for one counter (InitialValues says from what).
double recurrent_value(const Parameter& parameter, std::uint64_t key, std::uint64_t counter) {
    const double even = (static_cast<double>(spread_bits(key ^ spread_bits(counter)) >> 11U) + 0.5) * 0x1p-53;
    switch (parameter.initial) {
        case InitialValues::log_of_decay:
            return std::log(1 + 15 * even);
        case InitialValues::step_bias: {
            const double step = std::exp(std::log(0.001) + even * (std::log(0.1) - std::log(0.001)));
            return step + std::log(-std::expm1(-step));  // the inverse of softplus
        }
        case InitialValues::by_taps:
            return parameter.initial_bound * (2 * even - 1);
        case InitialValues::constant:
            return parameter.initial_bound;
        case InitialValues::by_name:
        case InitialValues::ones:
            break;
    }
    return 1;
}

bool contains(const std::string& name, std::string_view part) {
    return name.find(part) != std::string::npos;
}

/// Returns the parameter's name; copies of a tied table have one name on all ranks.
std::string name_on_rank(const Parameter& parameter) {
    return parameter.shared_embedding ? "embedding.word_embeddings.weight" : parameter.name;
}

/// Returns the key of a parameter's random values: the seed and the name that it has in every layout, or, per rank, on this rank.
std::uint64_t key_of(const ModelSpec& model, const Parameter& parameter, const ShardPlace& place, const InitializationOptions& options) {
    if (options.seeds == SeedKind::per_rank)
        return spread_bits(spread_bits(rank_seed(options.seed, parameter, place)) ^ hash_of(name_on_rank(parameter)));
    return spread_bits(options.seed ^ hash_of(whole_name(model, parameter, place)));
}

/// Makes the initial values of layers with a state on the host, because they are few.
void write_recurrent_values(const ModelSpec& model, const Parameter& parameter, const Tensor& value, const ShardPlace& place,
                            const InitializationOptions& options) {
    Device& device = value.device();
    const Tensor wide = device.empty(value.shape(), Dtype::fp64, MemoryCategory::workspace, "initial values");
    if (device.computes()) {
        const bool per_rank = options.seeds == SeedKind::per_rank;
        const std::uint64_t key = key_of(model, parameter, place, options);
        const ShardOfWhole shard = shard_of_whole(model, parameter, place);
        std::vector<double> values;
        for (std::int64_t i = 0; i < parameter.count(); ++i) {
            const std::int64_t whole = shard.whole_row(i / shard.columns) * shard.columns + i % shard.columns;
            values.push_back(recurrent_value(parameter, key, static_cast<std::uint64_t>(per_rank ? i : whole)));
        }
        device.write(wide, values.data());
    }
    copy(wide, value);
}

/// The device draws each value by its place in the whole parameter (per rank: in the shard). Rows that follow each other there are drawn at
/// once.
void draw_normal(const ModelSpec& model, const Parameter& parameter, const Tensor& value, const ShardPlace& place,
                 const InitializationOptions& options) {
    const std::string& name = parameter.name;
    const bool projects_out =
        contains(name, "linear_proj.weight") || contains(name, "linear_fc2.weight") || contains(name, "out_proj.weight");
    NormalDraw draw;
    draw.key = key_of(model, parameter, place, options);
    draw.deviation =
        options.deviation.value_or(model.init_deviation) / (projects_out ? std::sqrt(2.0 * static_cast<double>(model.layers)) : 1.0);
    const ShardOfWhole shard = shard_of_whole(model, parameter, place);
    const bool per_rank = options.seeds == SeedKind::per_rank;
    draw.pitch = per_rank ? shard.columns : shard.whole_columns();
    const std::int64_t first_column = shard.axis == 1 && !per_rank ? shard.index * shard.columns : 0;
    const Tensor all = value.view({shard.rows, shard.columns});
    for (std::int64_t row = 0, end = 0; row < shard.rows; row = end) {
        const std::int64_t whole = shard.whole_row(row), left = shard.whole_rows - whole;  // rows before the padding
        end = shard.block_end(row);
        if (left > 0) end = std::min(end, row + left);
        const Tensor rows = all.slice(row, end);
        draw.first = static_cast<std::uint64_t>((per_rank ? row : whole) * draw.pitch + first_column);
        if (whole < shard.whole_rows)
            fill_normal(rows, draw);
        else
            fill(rows, 0);  // padding of the vocabulary
    }
}

}  // namespace

std::uint64_t rank_seed(std::uint64_t seed, const Parameter& parameter, const ShardPlace& place) {
    const std::int64_t stage = parameter.shared_embedding ? 0 : place.pp_rank;
    const std::uint64_t of_stage = seed + 100 * static_cast<std::uint64_t>(stage);
    if (parameter.expert)
        return of_stage + 1024 + 100 * static_cast<std::uint64_t>(place.ep_rank) + static_cast<std::uint64_t>(place.etp_rank);
    return parameter.shard_axis ? of_stage + 2718 + static_cast<std::uint64_t>(place.tp_rank) : of_stage;
}

void initialize_weights(const ModelSpec& model, std::span<const Parameter> parameters, const WeightTable& weights, const ShardPlace& place,
                        const InitializationOptions& options) {
    for (const Parameter& parameter : parameters) {
        const Tensor& value = weights.at(parameter.name).value;
        const std::string& name = parameter.name;
        if (parameter.initial != InitialValues::by_name)
            write_recurrent_values(model, parameter, value, place, options);
        else if (name.ends_with("bias") || (parameter.expert && contains(name, ".bias")))
            fill(value, 0);
        else if (contains(name, "norm"))
            fill(value, 1);
        else
            draw_normal(model, parameter, value, place, options);
    }
}

}  // namespace mgplan::model
