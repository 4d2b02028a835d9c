#include "model/ops/positions.hpp"

#include "plan/text/errors.hpp"

namespace mgplan::model {

Positions zigzag_positions(std::int64_t sequence, std::int64_t batch, std::int64_t ranks, std::int64_t rank) {
    MGPLAN_ASSERT(ranks >= 1 && rank >= 0 && rank < ranks, "the rank is one of the ranks");
    MGPLAN_ASSERT(batch >= 1, "there is a sequence");
    MGPLAN_ASSERT(sequence >= 0, "a length is not negative");
    if (ranks == 1) return {sequence, {0, 0}, batch, 1};
    MGPLAN_ASSERT(sequence % (2 * ranks) == 0, "the sequence divides into two chunks for each rank");
    const std::int64_t chunk = sequence / (2 * ranks);
    return {chunk, {rank * chunk, (2 * ranks - 1 - rank) * chunk}, batch};
}

}  // namespace mgplan::model
