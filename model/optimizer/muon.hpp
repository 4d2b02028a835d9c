#pragma once
// Muon: a matrix is updated by its momentum with all singular values brought near 1 (K. Jordan et al., "Muon: an optimizer for hidden
// layers in neural networks", 2024), which a few Newton-Schulz steps do with products alone.
//
// After Megatron-LM (core/optimizer/emerging_optimizers.py, TensorParallelMuon) and NVIDIA's Emerging-Optimizers, whose classes it
// builds on (orthogonalized_optimizers/muon_utils.py): weight decay separate from the gradient, a momentum that is a moving average,
// queries, keys and values each orthogonalised separately.

#include <cstdint>
#include <optional>
#include <vector>

#include "model/communicator/communicator.hpp"
#include "plan/parameters/parameters.hpp"

namespace mgplan::model {

/// Way in which a matrix that tp (etp) ranks divide is orthogonalised (--muon-tp-mode).
enum class MuonShards : std::uint8_t {
    distributed,  ///< as the whole matrix: sums of squares and Gram matrices are added up over the ranks
    blockwise,    ///< each rank's shard for itself, which is another update
};

/// Factor of an orthogonal update of `rows` outputs and `columns` inputs (--muon-scale-mode).
enum class MuonScale : std::uint8_t {
    spectral,       ///< sqrt(max(rows, columns)), arXiv 2502.16982
    unit_rms_norm,  ///< sqrt(rows / columns)
    shape_scaling,  ///< sqrt(max(1, rows / columns))
};

/// Defaults are those of Megatron-LM's OptimizerConfig, but for `shards`, which there is blockwise.
struct MuonOptions {
    double momentum = 0.95;
    bool nesterov = false;
    int steps = 5;  ///< of Newton-Schulz
    MuonScale scale = MuonScale::spectral;
    double extra_scale = 1;
    MuonShards shards = MuonShards::distributed;
    bool split_qkv = true;
    /// Rows that a kv head has in the packed projection, part by part: queries, their gate where there is one, key, value. Empty: no
    /// such projection.
    std::vector<std::int64_t> qkv_rows;
};

/// MuonOptions::qkv_rows of a model's packed projection (model/layers/packed_qkv.hpp).
[[nodiscard]] std::vector<std::int64_t> qkv_rows(const ModelSpec& model);

/// Returns true if Muon updates a parameter: it has two dimensions and is neither a table of words nor the output layer nor the packed
/// input projection of Mamba and its kin. Adam updates the others (Megatron-LM, core/optimizer/layer_wise_optimizer.py,
/// is_managed_by_layer_wise_optimizer; core/ssm/mamba_mixer.py, use_muon).
[[nodiscard]] bool is_muon_matrix(const Parameter& parameter);

/// One matrix as a rank holds it; flat tensors of its elements. main, momentum and gradient are of one type.
struct MuonMatrix {
    Tensor main, momentum, gradient;
    const Parameter* description = nullptr;
    Communicator* ranks = nullptr;  ///< those that divide it, where any do
    Dtype products = Dtype::fp32;   ///< type in which it is orthogonalised: the parameter's own
};

/// Arguments that differ from step to step.
struct MuonStep {
    double learning_rate = 0;
    double weight_decay = 0;
    double gradient_factor = 1;  ///< clipping
};

/// x (rows, columns), which is used up, to a matrix with the same singular vectors and singular values near 1: quintic Newton-Schulz
/// steps with the coefficients of Emerging-Optimizers' "quintic", used in turn. `axis`: that `ranks` divide, each with an equal part;
/// nothing: x is whole. All temporaries count as optimizer memory.
[[nodiscard]] Tensor orthogonalised(Tensor x, std::optional<int> axis, Communicator* ranks, int steps);

/// `update` (rows, columns), of the main parameters' type, to its orthogonal matrix times `factor` and the scale of its shape: part by
/// part where it is the packed projection. Uses only the description, ranks and type of products of the matrix.
void orthogonalise_update(const Tensor& update, const MuonMatrix& matrix, const MuonOptions& options, double factor);

/// Updates momentum and main parameters; the gradient is used up.
void muon_step(const MuonMatrix& matrix, const MuonOptions& options, const MuonStep& step);

}  // namespace mgplan::model
