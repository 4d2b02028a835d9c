#include "simulator/piece/muon_record.hpp"

#include <numeric>

#include "model/communicator/recording_communicator.hpp"
#include "model/meta/meta_device.hpp"
#include "model/optimizer/muon.hpp"

namespace mgplan::simulator {
namespace {

class Reductions final : public model::CollectiveListener {
public:
    void on_collective(const model::CollectiveRecord& record) override { bytes.push_back(record.payload_bytes); }
    std::vector<std::int64_t> bytes;
};

}  // namespace

MuonRecord record_muon(const Parameter& parameter, const ModelSpec& model, const ParallelSizes& sizes, const TrainingSpec& training) {
    model::MetaDevice device;
    Reductions reductions;
    model::RecordingCommunicator ranks("tp", static_cast<int>(parameter.expert ? sizes.etp : sizes.tp), 0);
    ranks.set_listener(&reductions);
    const Dtype main = training.precision == Precision::fp64 ? Dtype::fp64 : Dtype::fp32;
    const auto state = [&] { return device.empty({parameter.count()}, main, model::MemoryCategory::parameters, "state"); };
    const model::MuonMatrix matrix{state(), state(), state(), &parameter, &ranks, training.compute_dtype()};
    model::MuonOptions options;
    options.qkv_rows = model::qkv_rows(model);
    // Layers that no engine trains (tp above the kv heads, layers of other kinds) count as one matrix.
    const std::int64_t group = std::accumulate(options.qkv_rows.begin(), options.qkv_rows.end(), std::int64_t{0});
    options.split_qkv = group > 0 && parameter.shape[0] % group == 0;
    MuonRecord record;
    model::muon_step(matrix, options, {});
    record.workspace = device.memory().high_water[static_cast<std::size_t>(model::MemoryCategory::optimizer)];
    device.forget_ops();
    reductions.bytes.clear();
    const model::Tensor update =
        device.empty({parameter.shape[0], parameter.shape[1]}, main, model::MemoryCategory::optimizer, "update of a matrix");
    model::orthogonalise_update(update, matrix, options, 1);
    record.ops = device.ops();
    record.reductions = reductions.bytes;
    return record;
}

}  // namespace mgplan::simulator
