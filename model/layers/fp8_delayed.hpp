#pragma once
// Delayed scaling of a rank's linear layers: the scales of a step come from the largest magnitudes of the steps before it.

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "model/communicator/communicator.hpp"
#include "model/layers/context.hpp"
#include "model/layers/fp8_weight.hpp"

namespace mgplan::model {

/// Three tensors a layer: its input, its weight, the gradient of its output. Transformer Engine moves scales once a microbatch
/// (pytorch/quantization.py, reduce_and_update_fp8_tensors), these move once a step, so that all passes of a step, whatever their order and
/// whatever is made again, cast alike; and its first scales are 1, as here those of inputs and weights, while gradients begin with the
/// inverse of the gradient of a row's loss.
class Fp8Delayed {
public:
    /// `weights`: of layers in fp8, in the order of the model, where the experts of a projection follow each other, made for
    /// OwnFp8::delayed; they cast by what lies here from now on.
    /// `unit`: the gradient of a row's loss. Counted with the parameters: fp8_delayed_bytes() for each weight.
    Fp8Delayed(Device& device, const std::vector<Weight>& weights, double unit);

    /// Once a step: the maximum over `groups`, one after the other, which hold all that have parts of these layers or of their rows, and
    /// what follows from it for the next step. Of experts these are etp and edp, of other layers tp·dp·cp (Megatron-core
    /// parallel_state.py, get_amax_reduction_group). Transformer Engine reduces experts over tp·dp·cp too, place by place
    /// (pytorch/quantization.py, reduce_and_update_fp8_tensors), so that under ep the i-th experts of all ranks, which are others, have one
    /// scale there; here each has its own under every layout.
    void update(std::initializer_list<Communicator*> groups);
    /// Sets the scales from histories that were read from a checkpoint.
    void go_on();

    /// The history of one tensor of a weight, (kFp8HistoryLength + 1): which of the three, and its name.
    struct History {
        std::string name;
        Tensor values;
    };
    [[nodiscard]] std::vector<History> histories(std::int64_t weight) const;

private:
    void follow();

    std::int64_t weights_;
    double unit_;
    Tensor now_, history_, scales_;  ///< inputs of all, then weights, then gradients
};

/// Bytes of a weight's three tensors.
[[nodiscard]] std::int64_t fp8_delayed_bytes();

}  // namespace mgplan::model
