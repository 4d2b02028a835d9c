#pragma once
// How the algorithm of a matrix product is found, where a library has several.

#include <cstdint>

namespace mgplan::model {

enum class ProductAlgorithm : std::uint8_t {
    /// The library's first answer for the shape: the same bits each time, on every rank with such a card.
    first,
    /// The device may take the fastest of several by timing, so that runs and ranks differ in the last bits. Not for what ranks compute
    /// each for itself and go on with as equal: replicas would drift apart.
    timed,
};

}  // namespace mgplan::model
