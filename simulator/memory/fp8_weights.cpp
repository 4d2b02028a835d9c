#include "simulator/memory/fp8_weights.hpp"

#include "model/layers/fp8_delayed.hpp"
#include "model/layers/fp8_weight.hpp"
#include "model/ops/fp8.hpp"
#include "plan/cluster/architectures.hpp"
#include "plan/text/rounding.hpp"

namespace mgplan::simulator {
namespace {

constexpr std::int64_t kBlock = 128;
constexpr std::int64_t kMicroscalingBlock = 32;
constexpr std::int64_t kNvfp4Block = 16;

}  // namespace

Fp8WeightBytes fp8_weight_bytes(std::int64_t rows, std::int64_t columns, QuantisedFormat format, int compute_capability) {
    if (compute_capability < architectures::kAda) return {};
    const std::int64_t elements = rows * columns;
    switch (format) {
        case QuantisedFormat::delayed:
        case QuantisedFormat::tensorwise:
            return {elements, compute_capability < architectures::kBlackwell ? elements : 0, 4};
        case QuantisedFormat::blockwise: {
            const std::int64_t down = divide_up(rows, kBlock), across = divide_up(columns, kBlock);
            return {elements, elements, 4 * (down * round_up(across, 4) + across * round_up(down, 4))};
        }
        case QuantisedFormat::mxfp8: {
            const std::int64_t along_rows = round_up(rows, 128) * round_up(divide_up(columns, kMicroscalingBlock), 4);
            const std::int64_t along_columns = round_up(divide_up(rows, kMicroscalingBlock), 4) * round_up(columns, 128);
            return {elements, elements, along_rows + along_columns};
        }
        case QuantisedFormat::nvfp4: {
            const std::int64_t along_rows = round_up(rows, 128) * round_up(divide_up(columns, kNvfp4Block), 4);
            const std::int64_t along_columns = round_up(columns, 128) * round_up(divide_up(rows, kNvfp4Block), 4);
            return {divide_up(elements, 2), divide_up(elements, 2), along_rows + along_columns + 8};
        }
    }
    return {};
}

Fp8WeightBytes own_fp8_weight_bytes(std::int64_t rows, std::int64_t columns, OwnFp8 scaling) {
    const bool delayed = scaling == OwnFp8::delayed;
    if (const auto blocks = model::blocks_of_weights(scaling)) {
        const std::int64_t places =
            model::Fp8ScaleLayout(*blocks, rows, columns).count() + model::Fp8ScaleLayout(*blocks, columns, rows).count();
        return {rows * columns, rows * columns, places * (*blocks == model::Fp8Scaling::vectors_of_32 ? 1 : bytes_of(Dtype::fp32))};
    }
    return {rows * columns, rows * columns, delayed ? model::fp8_delayed_bytes() : model::kFp8ScaleElements * bytes_of(Dtype::fp32)};
}

}  // namespace mgplan::simulator
