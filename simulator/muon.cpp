#include "simulator/muon.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/optimizer/muon.hpp"
#include "plan/parameters/model_adapter.hpp"
#include "plan/parameters/parameters.hpp"
#include "simulator/collectives/all_reduce.hpp"
#include "simulator/piece/muon_record.hpp"

namespace mgplan::simulator {
namespace {

constexpr int kNewtonSchulzSteps = 5;  ///< --muon-num-ns-steps

double newton_schulz_seconds(std::int64_t rows, std::int64_t columns, const KernelTimes& kernels) {
    const std::int64_t s = std::min(rows, columns), l = std::max(rows, columns);
    if (s == 0) return 0;
    return kNewtonSchulzSteps * (kernels.gemm(s, s, l) + kernels.gemm(s, s, s) + kernels.gemm(s, l, s));
}

/// Heads of queries and of keys in a layer's packed projection; 0 without one.
std::pair<std::int64_t, std::int64_t> packed_heads(const Layer& layer) {
    if (const auto* attention = mixer_as<Attention>(layer)) return {attention->heads, attention->kv_heads};
    if (const auto* beside = mixer_as<AttentionBesideMamba2>(layer)) return {beside->attention.heads, beside->attention.kv_heads};
    if (const auto* gemma = mixer_as<GemmaAttention>(layer)) return {gemma->heads, gemma->kv_heads};
    return {};
}

double matrix_seconds(const Parameter& parameter, std::pair<std::int64_t, std::int64_t> packed, const KernelTimes& kernels) {
    const std::int64_t rows = parameter.shape[0], columns = parameter.shape[1];
    if (packed.first == 0 || parameter.name.find("linear_qkv.weight") == std::string::npos)
        return newton_schulz_seconds(rows, columns, kernels);
    const std::int64_t heads = packed.first + 2 * packed.second;
    const std::int64_t queries = rows * packed.first / heads, keys = rows * packed.second / heads;
    return newton_schulz_seconds(queries, columns, kernels) + 2 * newton_schulz_seconds(keys, columns, kernels);
}

}  // namespace

MuonSeconds muon_seconds(const ModelSpec& model, std::int64_t layer, const ParallelSizes& sizes, const KernelTimes& kernels) {
    const auto packed = packed_heads(typed_layer(model, layer));
    MuonSeconds seconds;
    for (const Parameter& parameter : decoder_layer_parameters(model, layer, sizes, "")) {
        if (parameter.shape.size() == 2) (parameter.expert ? seconds.expert : seconds.dense) += matrix_seconds(parameter, packed, kernels);
    }
    return seconds;
}

MuonSeconds own_muon_seconds(const ModelSpec& model, std::int64_t layer, const ParallelSizes& sizes, const TrainingSpec& training,
                             const OpRates& rates, const LayoutPaths& paths) {
    MuonSeconds seconds;
    std::map<std::pair<std::vector<std::int64_t>, std::string>, double> known;  // all experts of a layer cost the same
    for (const Parameter& parameter : decoder_layer_parameters(model, layer, sizes, "")) {
        if (!model::is_muon_matrix(parameter)) continue;
        auto [entry, fresh] = known.try_emplace({parameter.shape, parameter.expert ? std::string() : parameter.name}, 0.0);
        if (fresh) {
            const MuonRecord record = record_muon(parameter, model, sizes, training);
            for (const model::OpRecord& op : record.ops) entry->second += op_seconds(op, rates);
            for (const std::int64_t bytes : record.reductions)
                entry->second +=
                    all_reduce_seconds(static_cast<double>(bytes), parameter.expert ? paths.etp : paths.tp, *rates.calibration);
        }
        (parameter.expert ? seconds.expert : seconds.dense) += entry->second;
    }
    return seconds;
}

}  // namespace mgplan::simulator
