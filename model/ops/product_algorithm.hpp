#pragma once
// Choice of the algorithm of a matrix product, if a library has several.

#include <cstdint>

namespace mgplan::model {

enum class ProductAlgorithm : std::uint8_t {
    /// The library's first answer for the shape: the same bits each time, on every rank with such a card.
    first,
    /// The device may take the fastest of several by timing, so that runs and ranks differ in the last bits. Not for values that ranks
    /// compute each for itself and then use as equal: replicas would drift apart.
    timed,
    /// The library's first answer for a size near this one, for experts' products: the number of rows (m, or k if the product adds to a
    /// sum) changes in each step, and a query takes a host longer than a card needs for some of them. The same bits each time too.
    near,
};

}  // namespace mgplan::model
