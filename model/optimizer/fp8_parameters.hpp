#pragma once
// Parameters of linear layers that are stored and gathered in fp8 (Megatron-LM's --fp8-param-gather): a rank casts its own main
// parameters to its shard of the buffer of codes, which is then gathered.

#include <cstddef>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "model/communicator/communicator.hpp"
#include "model/layers/context.hpp"
#include "model/layers/fp8_weight.hpp"
#include "model/optimizer/optimizer.hpp"
#include "plan/parameters/parameters.hpp"

namespace mgplan::model {

/// Dense weights of a rank, or its experts'. Main parameters are first rounded to 16 bits, as they are if products cast 16-bit
/// parameters, so that codes are the same (Transformer Engine, pytorch/tensor/utils.py, quantize_master_weights). With current scaling a
/// weight's largest magnitude is the maximum over the ranks that share it (there, _cast_master_weights_to_fp8_current_scaling), by one
/// all-reduce of a pair of fp32 for each weight; with delayed scaling it enters the history at the end of the next step, over all ranks
/// (model/layers/fp8_delayed.hpp), and nothing is sent here.
class Fp8Parameters {
public:
    using Named = std::pair<const Parameter*, Weight>;
    /// `weights`: stored in fp8, of all chunks; under delayed scaling Fp8Delayed has them already. `shards`: ranks that have parts of their
    /// main parameters. Takes, under current scaling, a scale for each weight, counted with the parameters.
    Fp8Parameters(Device& device, std::vector<Named> weights, Communicator& shards);

    /// Casts the values that Weight::value of the `index`-th weight has, whole and the same on all ranks.
    void begin(std::size_t index) const;
    /// Casts the rank's own parameters, as the optimizer rounded them. Every rank of `shards` calls it; codes are still to be gathered.
    void cast(std::span<const Optimizer::Owned> owned) const;

    [[nodiscard]] const std::vector<Named>& weights() const { return weights_; }

private:
    [[nodiscard]] Fp8Weight& copies(std::size_t index) const { return *weights_[index].second.fp8; }
    /// Place of a weight's largest magnitude.
    [[nodiscard]] Tensor largest(std::size_t index) const;

    std::vector<Named> weights_;
    std::map<const Parameter*, std::size_t> index_of_;
    Communicator& shards_;
    Tensor scales_;  ///< (weights, 2); undefined under delayed scaling
};

}  // namespace mgplan::model
