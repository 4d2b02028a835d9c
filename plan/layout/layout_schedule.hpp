#pragma once
// The pipeline schedule of a layout: one description for whoever runs it, replays it or counts its memory.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "plan/layout/layout.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/schedule/pipeline_order.hpp"
#include "plan/schedule/schedule.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan {

/// Returns the schedule's name: "none", "1f1b" or "interleaved" as pp and vpp make it, or that of the split schedule.
[[nodiscard]] std::string_view schedule_name(const Layout& layout);
/// All names that a layout's schedule may have.
[[nodiscard]] std::vector<std::string> schedule_names();

/// Reasons why the layout cannot run its split schedule, in one line each: sizes, microbatches, engine. Empty if it has none.
[[nodiscard]] std::vector<std::string> split_schedule_problems(const Layout& layout);

/// Features that the layout's split schedule does not run with, each in words with a fix: CUDA graphs, multi-token prediction, fully
/// sharded parameters, and in a V embeddings that are tied over two chunks. Empty if the layout has no split schedule.
[[nodiscard]] std::vector<std::string> split_schedule_obstacles(const ModelSpec& model, const TrainingSpec& training, const Layout& layout);

/// A layout's lists.
class LayoutSchedule {
public:
    /// Throws ConfigError for sizes that the schedule does not run on (split_schedule_problems(), Schedule's).
    explicit LayoutSchedule(const Layout& layout);

    [[nodiscard]] RankSchedule rank(int pp_rank) const;
    /// The lists of all ranks; at most kMostOrderOps passes.
    [[nodiscard]] PipelineOrder order() const;
    /// The lists of a schedule with divided backwards; null: Megatron-LM's.
    [[nodiscard]] const PipelineOrder* split() const { return std::get_if<PipelineOrder>(&lists_); }
    [[nodiscard]] int pp() const;
    [[nodiscard]] int chunks() const;
    [[nodiscard]] bool v_shaped() const { return split() != nullptr && split()->v_shaped; }
    /// Pipeline rank that takes the output of a rank's chunk; -1 after the last stage.
    [[nodiscard]] int rank_behind(int pp_rank, int chunk) const;
    /// Pipeline rank whose output a rank's chunk takes; -1 in front of the first stage.
    [[nodiscard]] int rank_before(int pp_rank, int chunk) const;
    [[nodiscard]] std::int64_t group_size() const { return group_size_; }

private:
    [[nodiscard]] int neighbour(int pp_rank, int chunk, int step) const;

    std::variant<Schedule, PipelineOrder> lists_;
    std::int64_t group_size_;
};

}  // namespace mgplan
