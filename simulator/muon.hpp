#pragma once
// What Muon's orthogonalisation takes (K. Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024; Megatron-LM,
// core/optimizer/emerging_optimizers.py).

#include <array>

#include "plan/layout/layout.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/training/training_spec.hpp"
#include "simulator/compute/kernels.hpp"
#include "simulator/price/op_price.hpp"
#include "simulator/price/shard.hpp"

namespace mgplan::simulator {

/// Seconds to orthogonalise all matrices of one layer on one rank, those of dense and those of expert parameters.
struct MuonSeconds {
    double dense = 0, expert = 0;
};

/// Work for a decoder layer, by its number. Five Newton-Schulz steps of X (s x l, s <= l): A = X X', B = b A + c A A, X = a X + B X, so 4
/// s^2 l + 2 s^3 FLOPs each, as products of 16 bits. A rank orthogonalises its tp shard alone (--muon-tp-mode blockwise, the default),
/// queries, keys and values apart (not --muon-no-split-qkv), each expert for itself. `kernels`: of 16-bit products.
[[nodiscard]] MuonSeconds muon_seconds(const ModelSpec& model, std::int64_t layer, const ParallelSizes& sizes, const KernelTimes& kernels);

/// The same for engine mgplan, whose ranks orthogonalise a matrix that tp (etp) divides as the whole: the ops and all-reduces of each
/// matrix as its optimizer does them on shapes (simulator/piece/muon_record.hpp), one behind the other.
[[nodiscard]] MuonSeconds own_muon_seconds(const ModelSpec& model, std::int64_t layer, const ParallelSizes& sizes,
                                           const TrainingSpec& training, const OpRates& rates, const LayoutPaths& paths);

}  // namespace mgplan::simulator
