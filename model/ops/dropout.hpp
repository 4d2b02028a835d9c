#pragma once
// Residual addition with dropout from a counter-based generator: what is dropped depends on seed, stream and the value's
// global place alone, never on the layout, and need not be stored.

#include "model/device/tensor.hpp"
#include "model/ops/positions.hpp"

namespace mgplan::model {

struct DropoutPlace {
    double probability = 0;  ///< 0: no dropout, the generator is not called
    std::uint64_t seed = 0;
    std::uint64_t stream = 0;         ///< layer, place in the layer and step
    Positions positions;              ///< of the rows before sequence parallelism
    std::int64_t first_row = 0;       ///< sequence parallelism: this rank's first row of those
    std::int64_t first_sequence = 0;  ///< global number of the microbatch's first sequence
    /// (4) int32 on the device: seed and first sequence, low words first, read there in place of the two above. Needed by a CUDA
    /// graph, which repeats the values that the host gave it. Undefined: not used.
    Tensor changing{};
};

inline constexpr std::int64_t kDropoutWords = 4;
/// Into DropoutPlace::changing, by the host.
void write_dropout_words(const Tensor& words, std::uint64_t seed, std::int64_t first_sequence);

/// residual + x · mask / (1 - probability).
[[nodiscard]] Tensor dropout_add(const Tensor& x, const Tensor& residual, const DropoutPlace& place);
/// Gradient for x: dy · mask / (1 - probability), without dropout dy itself; the residual's gradient is dy itself.
[[nodiscard]] Tensor dropout_backward(const Tensor& dy, const DropoutPlace& place);

}  // namespace mgplan::model
