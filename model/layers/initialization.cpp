#include "model/layers/initialization.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>
#include <thread>
#include <vector>

#include "model/ops/elementwise.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {
namespace {

/// SplitMix64's finalizer (Steele et al., OOPSLA 2014): a good hash of a counter.
std::uint64_t mixed(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31U);
}

std::uint64_t hash_of(std::string_view text) {
    std::uint64_t hash = 1469598103934665603ULL;  // FNV-1a
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
    return hash;
}

/// A standard normal value for one counter (Box and Muller, 1958).
double normal(std::uint64_t key, std::uint64_t counter) {
    const double u = (static_cast<double>(mixed(key ^ mixed(2 * counter)) >> 11U) + 0.5) * 0x1p-53;
    const double v = static_cast<double>(mixed(key ^ mixed(2 * counter + 1)) >> 11U) * 0x1p-53;
    return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

/// A value that is not normal, drawn for one counter (InitialValues says from what).
double recurrent_value(const Parameter& parameter, std::uint64_t key, std::uint64_t counter) {
    const double even = (static_cast<double>(mixed(key ^ mixed(counter)) >> 11U) + 0.5) * 0x1p-53;
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

/// A tied table has one name wherever its copies live.
std::string name_on_rank(const Parameter& parameter) {
    return parameter.shared_embedding ? "embedding.word_embeddings.weight" : parameter.name;
}

/// Calls work(first, last) for stretches of all rows, on several threads where there is much to do: a value takes some 40 ns,
/// and a billion of them on one thread more than half a minute.
template <class Work>
void in_stretches(std::int64_t rows, std::int64_t values, const Work& work) {
    constexpr std::int64_t kWorthAThread = 1 << 20;
    const std::int64_t processors = std::max(1U, std::thread::hardware_concurrency());
    const std::int64_t stretches =
        std::clamp<std::int64_t>(values / kWorthAThread, 1, std::max<std::int64_t>(1, std::min(processors, rows)));
    std::vector<std::jthread> threads;
    for (std::int64_t i = 1; i < stretches; ++i) {
        threads.emplace_back([&work, first = rows * i / stretches, last = rows * (i + 1) / stretches] { work(first, last); });
    }
    work(0, rows / stretches);
}

std::vector<double> initial_values(const ModelSpec& model, const Parameter& parameter, const ShardPlace& place,
                                   const InitializationOptions& options) {
    const bool per_rank = options.seeds == SeedKind::per_rank;
    std::vector<double> values(static_cast<std::size_t>(parameter.count()), 0.0);
    const std::string& name = parameter.name;
    const std::uint64_t seed = per_rank ? mixed(rank_seed(options.seed, parameter, place)) : options.seed;
    const std::uint64_t key = mixed(seed ^ hash_of(per_rank ? name_on_rank(parameter) : whole_name(model, parameter, place)));
    if (parameter.initial != InitialValues::by_name) {
        const ShardOfWhole shard = shard_of_whole(model, parameter, place);
        for (std::int64_t i = 0; i < parameter.count(); ++i) {
            const std::int64_t whole = shard.whole_row(i / shard.columns) * shard.columns + i % shard.columns;
            values[static_cast<std::size_t>(i)] = recurrent_value(parameter, key, static_cast<std::uint64_t>(per_rank ? i : whole));
        }
        return values;
    }
    if (name.ends_with("bias") || (parameter.expert && contains(name, ".bias"))) return values;
    if (contains(name, "norm")) {
        std::fill(values.begin(), values.end(), 1.0);
        return values;
    }
    const bool projects_out =
        contains(name, "linear_proj.weight") || contains(name, "linear_fc2.weight") || contains(name, "out_proj.weight");
    const double deviation =
        options.deviation.value_or(model.init_deviation) / (projects_out ? std::sqrt(2.0 * static_cast<double>(model.layers)) : 1.0);
    const ShardOfWhole shard = shard_of_whole(model, parameter, place);
    const std::int64_t rows = shard.rows, columns = shard.columns;
    const std::int64_t first_column = shard.axis == 1 ? shard.index * columns : 0;
    const auto fill_rows = [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t row = first; row < last; ++row) {
            const std::int64_t global = shard.whole_row(row);
            if (global >= shard.whole_rows) continue;  // padding of the vocabulary
            const std::int64_t counter = per_rank ? row * columns : global * shard.whole_columns() + first_column;
            for (std::int64_t column = 0; column < columns; ++column) {
                values[static_cast<std::size_t>(row * columns + column)] =
                    deviation * normal(key, static_cast<std::uint64_t>(counter + column));
            }
        }
    };
    in_stretches(rows, rows * columns, fill_rows);
    return values;
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
        Device& device = value.device();
        const Tensor wide = device.empty(value.shape(), Dtype::fp64, MemoryCategory::workspace, "initial values");
        if (device.computes()) device.write(wide, initial_values(model, parameter, place, options).data());
        copy(wide, value);
    }
}

}  // namespace mgplan::model
