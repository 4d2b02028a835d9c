#include "simulator/piece/fp8_operands.hpp"

#include "plan/cluster/architectures.hpp"
#include "plan/text/rounding.hpp"

namespace mgplan::simulator {

Fp8OperandBytes fp8_operand_bytes(std::int64_t rows, std::int64_t columns, QuantisedFormat format, int compute_capability) {
    if (compute_capability < architectures::kAda) return {};
    const std::int64_t elements = rows * columns;
    Fp8OperandBytes bytes;
    switch (format) {
        case QuantisedFormat::delayed:
        case QuantisedFormat::tensorwise:
            bytes.rowwise = bytes.columnwise = elements + 4;
            bytes.both = bytes.rowwise + (compute_capability < architectures::kBlackwell ? elements : 0);
            return bytes;
        case QuantisedFormat::blockwise:
            bytes.rowwise = elements + 4 * divide_up(columns, 128) * round_up(rows, 4);
            bytes.columnwise = elements + 4 * divide_up(rows, 128) * round_up(columns, 4);
            break;
        case QuantisedFormat::mxfp8:
            bytes.rowwise = elements + round_up(rows, 128) * round_up(divide_up(columns, 32), 4);
            bytes.columnwise = elements + round_up(divide_up(rows, 32), 4) * round_up(columns, 128);
            break;
        case QuantisedFormat::nvfp4:
            bytes.rowwise = divide_up(elements, 2) + round_up(rows, 128) * round_up(divide_up(columns, 16), 4) + 4;
            bytes.columnwise = divide_up(elements, 2) + round_up(columns, 128) * round_up(divide_up(rows, 16), 4) + 4;
            break;
    }
    bytes.both = bytes.rowwise + bytes.columnwise;
    return bytes;
}

}  // namespace mgplan::simulator
