#include "simulator/piece/fp8_operands.hpp"

#include "plan/rounding.hpp"

namespace mgplan::simulator {

Fp8OperandBytes fp8_operand_bytes(std::int64_t rows, std::int64_t columns, Fp8Recipe recipe, int compute_capability) {
    if (compute_capability < 89) return {};
    const std::int64_t elements = rows * columns;
    Fp8OperandBytes bytes;
    switch (recipe) {
        case Fp8Recipe::delayed:
        case Fp8Recipe::tensorwise:
            bytes.rowwise = bytes.columnwise = elements + 4;
            bytes.both = bytes.rowwise + (compute_capability < 100 ? elements : 0);
            return bytes;
        case Fp8Recipe::blockwise:
            bytes.rowwise = elements + 4 * divide_up(columns, 128) * round_up(rows, 4);
            bytes.columnwise = elements + 4 * divide_up(rows, 128) * round_up(columns, 4);
            break;
        case Fp8Recipe::mxfp8:
            bytes.rowwise = elements + round_up(rows, 128) * round_up(divide_up(columns, 32), 4);
            bytes.columnwise = elements + round_up(divide_up(rows, 32), 4) * round_up(columns, 128);
            break;
    }
    bytes.both = bytes.rowwise + bytes.columnwise;
    return bytes;
}

}  // namespace mgplan::simulator
