#include "simulator/muon.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/optimizer/muon.hpp"
#include "plan/parameters/composed_layer.hpp"
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

double matrix_seconds(const Parameter& parameter, const ModelSpec& model, const KernelTimes& kernels) {
    const std::int64_t rows = parameter.shape[0], columns = parameter.shape[1];
    if (parameter.name.find("linear_qkv.weight") == std::string::npos) return newton_schulz_seconds(rows, columns, kernels);
    const std::int64_t heads = model.heads + 2 * model.kv_heads;
    const std::int64_t queries = rows * model.heads / heads, keys = rows * model.kv_heads / heads;
    return newton_schulz_seconds(queries, columns, kernels) + 2 * newton_schulz_seconds(keys, columns, kernels);
}

}  // namespace

MuonSeconds muon_seconds(const ModelSpec& model, std::int64_t layer, const ParallelSizes& sizes, const KernelTimes& kernels) {
    const ModelSpec fields = model.compositions.empty() ? model : composed_layer(model, layer).fields;
    MuonSeconds seconds;
    for (const Parameter& parameter : decoder_layer_parameters(model, layer, sizes, "")) {
        if (parameter.shape.size() == 2) (parameter.expert ? seconds.expert : seconds.dense) += matrix_seconds(parameter, fields, kernels);
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
