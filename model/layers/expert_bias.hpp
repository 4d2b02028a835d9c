#pragma once
// Balances experts without a loss (DeepSeek-V3, arXiv 2412.19437 section 2.1.2; arXiv 2408.15664): a bias for each expert
// is added to its score for the choice, and changes after every step against the load.

#include <cstdint>
#include <map>
#include <vector>

#include "model/communicator/communicator.hpp"
#include "model/device/device.hpp"

namespace mgplan::model {

/// The biases of all MoE layers on one rank, equal on all ranks that hold the same layers. Not trained: no gradient, no state of
/// the optimizer.
class ExpertBiases {
public:
    /// `layers`: global numbers of the rank's MoE layers. Biases and counts start at 0.
    ExpertBiases(Device& device, const std::vector<std::int64_t>& layers, std::int64_t experts, Dtype dtype);

    /// (experts); the layer must be one of the rank's (assertion).
    [[nodiscard]] const Tensor& of(std::int64_t layer) const;
    /// Numbers of the MoE layers, ascending.
    [[nodiscard]] std::vector<std::int64_t> layers() const;
    /// Counts the choices of one microbatch's rows, (rows, top_k) int32, on the device. To be called once for each microbatch.
    void count(std::int64_t layer, const Tensor& experts);
    /// Once a step: adds the counts up over `ranks`, all that hold rows for these layers (tp·cp·dp), and moves every bias by
    /// `rate`, up where an expert had less than the mean and down where more (Megatron-LM moe_utils.py,
    /// get_updated_expert_bias). Resets the counts.
    void update(Communicator& ranks, double rate);

private:
    struct Layer {
        Tensor bias;
        Tensor choices;  ///< (experts) int32, a part of choices_
    };

    Device& device_;
    std::int64_t experts_;
    Tensor choices_;  ///< (layers, experts) int32
    std::map<std::int64_t, Layer> layers_;
};

}  // namespace mgplan::model
