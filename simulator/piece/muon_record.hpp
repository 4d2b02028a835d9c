#pragma once
// What engine mgplan's Muon does with one matrix, recorded by running it on shapes (model/optimizer/muon.hpp).

#include <cstdint>
#include <vector>

#include "model/device/device.hpp"
#include "plan/layout/layout.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/parameters/parameters.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan::simulator {

struct MuonRecord {
    std::int64_t workspace = 0;            ///< bytes that the update takes beside the state, at most
    std::vector<model::OpRecord> ops;      ///< of the orthogonalisation
    std::vector<std::int64_t> reductions;  ///< bytes that each of its all-reduces over tp (etp of experts) sums up
};

/// Records a matrix as one rank holds it, with the options that `run` has by default; where a rank has a part of a kv head the packed
/// projection is one matrix.
[[nodiscard]] MuonRecord record_muon(const Parameter& parameter, const ModelSpec& model, const ParallelSizes& sizes,
                                     const TrainingSpec& training);

}  // namespace mgplan::simulator
