#include "model/communicator/collective_counter.hpp"

namespace mgplan::model {

void CollectiveCounter::add(std::string_view group, CollectiveKind kind, std::int64_t payload_bytes) {
    auto place = totals_.find(ByName::Name(group, kind));
    if (place == totals_.end()) place = totals_.emplace(std::pair(std::string(group), kind), CollectiveTotal{}).first;
    ++place->second.operations;
    place->second.payload_bytes += payload_bytes;
}

CollectiveTotal CollectiveCounter::of(std::string_view group, CollectiveKind kind) const {
    const auto place = totals_.find(ByName::Name(group, kind));
    return place == totals_.end() ? CollectiveTotal{} : place->second;
}

CollectiveTotal CollectiveCounter::all() const {
    CollectiveTotal sum;
    for (const auto& [key, total] : totals_) {
        sum.operations += total.operations;
        sum.payload_bytes += total.payload_bytes;
    }
    return sum;
}

}  // namespace mgplan::model
