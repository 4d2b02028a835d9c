#pragma once
// Counts operations and payload bytes per group and kind: of one communicator or of all that report to it.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "model/communicator/communicator.hpp"

namespace mgplan::model {

struct CollectiveTotal {
    std::int64_t operations = 0;
    std::int64_t payload_bytes = 0;  ///< as CollectiveRecord counts them
    bool operator==(const CollectiveTotal&) const = default;
};

/// Two counters are equal when the same operations with the same bytes passed in every group. Used by one thread.
class CollectiveCounter final : public CollectiveListener {
public:
    void on_collective(const CollectiveRecord& record) override { add(record.group, record.kind, record.payload_bytes); }
    void add(std::string_view group, CollectiveKind kind, std::int64_t payload_bytes);

    /// Zeros for what never happened.
    [[nodiscard]] CollectiveTotal of(std::string_view group, CollectiveKind kind) const;
    /// Sum over all groups and kinds.
    [[nodiscard]] CollectiveTotal all() const;

    /// By group name, then kind; found without making a string of the name.
    struct ByName {
        using is_transparent = void;
        using Name = std::pair<std::string_view, CollectiveKind>;
        bool operator()(const Name& a, const Name& b) const { return a < b; }
    };
    using Totals = std::map<std::pair<std::string, CollectiveKind>, CollectiveTotal, ByName>;
    [[nodiscard]] const Totals& totals() const { return totals_; }
    void clear() { totals_.clear(); }
    bool operator==(const CollectiveCounter& other) const { return totals_ == other.totals_; }

private:
    Totals totals_;
};

}  // namespace mgplan::model
