#pragma once
// Every rule that Megatron-LM or arithmetic imposes on a layout, each with a name and a message. The enumerator, the command line and the
// property tests all use this list.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/layout/layout_request.hpp"
#include "plan/workload.hpp"

namespace mgplan::planner {

/// Fields of a layout that a rule requires to be set: the enumerator sets the fields in this order.
enum class Level : std::uint8_t {
    tensor,      ///< tp
    context,     ///< cp
    pipeline,    ///< pp
    expert,      ///< ep and etp, which complete both grids
    chunks,      ///< vpp and the stage split
    microbatch,  ///< micro_batch, num_microbatches, group_size
    sequence_parallel,
    context_kind,  ///< cp_comm_type
    recompute,
    switches,  ///< Layout::switches, together with CUDA graphs
};
inline constexpr int kLevels = 10;

struct Rule {
    std::string_view name;    ///< stable, for programs: "tp_divides_heads"
    std::string_view reason;  ///< short, for the table of rejections: "tp does not divide the attention heads"
    Level level;
    bool (*broken)(const Workload& workload, const Layout& layout);
    /// Field, value, rule and way out in one sentence.
    std::string (*message)(const Workload& workload, const Layout& layout);
    bool alone = false;    ///< does not depend on fields of earlier levels
    bool no_tail = false;  ///< for Level::switches: depends on neither recompute nor CUDA graphs
};

/// All rules, by level.
[[nodiscard]] std::span<const Rule> rules();

/// The first rule of a level that the layout breaks, or nullptr. Rules of earlier levels must hold.
[[nodiscard]] const Rule* first_broken(const Workload& workload, const Layout& layout, Level level);

/// Messages of all rules that the layout breaks. Rules of later levels are checked only if the earlier ones hold, except rules marked
/// `alone`.
[[nodiscard]] std::vector<std::string> broken_messages(const Workload& workload, const Layout& layout);
/// Messages of broken rules marked `alone` at levels after `level`.
[[nodiscard]] std::vector<std::string> broken_alone_behind(const Workload& workload, const Layout& layout, Level level);
/// Messages of broken rules of one level.
[[nodiscard]] std::vector<std::string> broken_messages(const Workload& workload, const Layout& layout, Level level);

/// The etp of a model without experts: its expert grid equals the dense one, with cp folded into etp if the order is not the default, so
/// that every order that the dense grid allows is allowed.
[[nodiscard]] std::int64_t etp_without_experts(const ParallelSizes& sizes);

/// Fills in fields that a request leaves open and checks the result: throws ConfigError with every broken rule. Fields without effect get
/// their neutral value: ep and etp without experts, sequence parallelism without tp, cp_comm_type without cp.
[[nodiscard]] Layout make_layout(const LayoutRequest& request, const Workload& workload);

}  // namespace mgplan::planner
