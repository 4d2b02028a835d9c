#include "simulator/memory/fp8_weights.hpp"

#include "plan/rounding.hpp"

namespace mgplan::simulator {
namespace {

constexpr std::int64_t kBlock = 128;
constexpr std::int64_t kMicroscalingBlock = 32;

}  // namespace

Fp8WeightBytes fp8_weight_bytes(std::int64_t rows, std::int64_t columns, Fp8Recipe recipe, int compute_capability) {
    if (compute_capability < 89) return {};
    const std::int64_t elements = rows * columns;
    switch (recipe) {
        case Fp8Recipe::delayed:
        case Fp8Recipe::tensorwise:
            return {elements, compute_capability < 100 ? elements : 0, 4};
        case Fp8Recipe::blockwise: {
            const std::int64_t down = divide_up(rows, kBlock), across = divide_up(columns, kBlock);
            return {elements, elements, 4 * (down * round_up(across, 4) + across * round_up(down, 4))};
        }
        case Fp8Recipe::mxfp8: {
            const std::int64_t along_rows = round_up(rows, 128) * round_up(divide_up(columns, kMicroscalingBlock), 4);
            const std::int64_t along_columns = round_up(divide_up(rows, kMicroscalingBlock), 4) * round_up(columns, 128);
            return {elements, elements, along_rows + along_columns};
        }
    }
    return {};
}

}  // namespace mgplan::simulator
