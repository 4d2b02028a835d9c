#pragma once
// Recompute, CUDA graphs and switches that the rules allow for the rest of a layout, computed once for many layouts.

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/workload.hpp"
#include "planner/candidates.hpp"
#include "planner/constraints.hpp"
#include "planner/search_result.hpp"
#include "simulator/piece/made_once.hpp"

namespace mgplan::planner {

/// The fields of a layout that the enumerator sets last.
struct LayoutTail {
    EnumSet<CudaGraphScope> cuda_graphs;
    Recompute recompute = Recompute::none;
    EnumSet<RecomputeModule> recompute_modules;
    std::optional<RecomputeMethod> recompute_method;
    std::int64_t recompute_num_layers = 0;
    const std::shared_ptr<const LayoutSwitches>* switches = nullptr;  ///< one of the space's

    void write(Layout& layout) const;
};

/// The largest block size of full recompute that is searched, of 1, 2, 4 … layers: smaller than the largest chunk, because a block of the
/// whole chunk equals uniform recompute of single layers. 0: none.
[[nodiscard]] std::int64_t largest_block(const SearchSpace& space, const StageSplit& split);

/// The tails of a space, in the order of its switches. Rules of these levels depend only on these fields of the rest of a layout: tp, ep,
/// etp, sequence parallelism, and whether there is a pipeline and an interleaved one (tests/planner/bounded_search_test.cpp).
class LegalTails {
public:
    /// Both arguments must outlive it.
    LegalTails(const Workload& workload, const SearchSpace& space);

    struct Rejected {
        const Rule* rule;
        LayoutTail first;
        std::int64_t count;
    };
    struct Tails {
        std::vector<LayoutTail> legal;
        std::vector<Rejected> rejected;
    };

    /// Tails for the rest of `layout`; the caller counts the rejected ones. `blocks`: largest_block(). Valid as long as this object.
    [[nodiscard]] const Tails& of(const Layout& layout, std::int64_t blocks);

private:
    using Key = std::array<std::int64_t, 6>;
    /// Tails with blocks of any size; each with the number of layers of its block, 0 if it is not a block of the space.
    struct AnyBlock {
        std::vector<std::pair<std::int64_t, LayoutTail>> legal;
        std::vector<std::pair<std::int64_t, Rejected>> rejected;
    };
    struct Search;
    /// Shared by all copies.
    struct Known {
        struct Entry {
            simulator::MadeOnce once;
            AnyBlock tails;
            std::map<std::int64_t, Tails> by_block;  ///< key: maximum number of layers of a block
        };
        std::mutex mutex;
        std::map<Key, Entry> entries;
    };

    [[nodiscard]] const Tails& tails_of(const Key& key, const Layout& layout, std::int64_t blocks);
    [[nodiscard]] static Tails without_larger_blocks(const AnyBlock& all, std::int64_t blocks);

    const Workload& workload_;
    const SearchSpace& space_;
    std::vector<Recompute> recomputes_;
    std::vector<EnumSet<RecomputeModule>> module_sets_;
    std::vector<EnumSet<CudaGraphScope>> graph_sets_;
    std::shared_ptr<Known> known_ = std::make_shared<Known>();
    Key last_key_{};
    std::int64_t last_blocks_ = 0;
    const Tails* last_ = nullptr;  ///< element of known_: consecutive layouts often share it
};

}  // namespace mgplan::planner
