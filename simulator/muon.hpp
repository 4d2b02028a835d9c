#pragma once
// Time of Muon's orthogonalisation (K. Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024; Megatron-LM,
// core/optimizer/emerging_optimizers.py).

#include <array>

#include "plan/layout/layout.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/training/training_spec.hpp"
#include "simulator/compute/kernels.hpp"
#include "simulator/price/op_price.hpp"
#include "simulator/price/shard.hpp"

namespace mgplan::simulator {

/// Seconds in which one rank orthogonalises all matrices of one layer, dense and expert parameters apart.
struct MuonSeconds {
    double dense = 0, expert = 0;
};

/// Time of decoder layer number `layer`. Five Newton-Schulz steps on X (s x l, s <= l): A = X X', B = b A + c A A, X = a X + B X, so 4 s^2
/// l + 2 s^3 FLOPs each, as 16-bit GEMMs. A rank orthogonalises only its tp shard (--muon-tp-mode blockwise, the default), queries, keys
/// and values separately (unless --muon-no-split-qkv), each expert by itself. `kernels`: of 16-bit GEMMs.
[[nodiscard]] MuonSeconds muon_seconds(const ModelSpec& model, std::int64_t layer, const ParallelSizes& sizes, const KernelTimes& kernels);

/// Time of engine mgplan, where the tp (etp) ranks orthogonalise each matrix as a whole: seconds of the ops and all-reduces that its
/// optimizer runs for each matrix, recorded on shapes (simulator/piece/muon_record.hpp), one after the other.
[[nodiscard]] MuonSeconds own_muon_seconds(const ModelSpec& model, std::int64_t layer, const ParallelSizes& sizes,
                                           const TrainingSpec& training, const OpRates& rates, const LayoutPaths& paths);

}  // namespace mgplan::simulator
