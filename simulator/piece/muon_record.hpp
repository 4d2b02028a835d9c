#pragma once
// Ops of engine mgplan's Muon for one matrix, recorded by running it on shapes (model/optimizer/muon.hpp).

#include <cstdint>
#include <vector>

#include "model/device/device.hpp"
#include "plan/layout/layout.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/parameters/parameters.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan::simulator {

struct MuonRecord {
    std::int64_t workspace = 0;            ///< peak bytes that the update takes in addition to the state
    std::vector<model::OpRecord> ops;      ///< ops of the orthogonalisation
    std::vector<std::int64_t> reductions;  ///< bytes of each of its all-reduces over tp (etp for experts)
};

/// Records one rank's shard of a matrix, with the default options of `run`; if a rank has part of a kv head, the packed projection counts
/// as one matrix.
[[nodiscard]] MuonRecord record_muon(const Parameter& parameter, const ModelSpec& model, const ParallelSizes& sizes,
                                     const TrainingSpec& training);

}  // namespace mgplan::simulator
