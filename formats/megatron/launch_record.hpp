#pragma once
// The launches of a script, as `mgplan record` wrote them down: the words of each launcher, and the training command among them.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/input/job.hpp"
#include "formats/megatron/launch_world.hpp"
#include "formats/megatron/megatron_arguments.hpp"

namespace mgplan::formats {

/// One call of a launcher.
struct RecordedLaunch {
    std::string program;  ///< "torchrun"
    std::string folder;   ///< that it was called in
    std::vector<std::string> words;
    std::map<std::string, std::string> variables;  ///< of its environment, those that its words name: $NODES in `bash -c '… $NODES'`

    bool operator==(const RecordedLaunch&) const = default;
};

struct LaunchRecord {
    std::vector<std::string> command;  ///< that was executed: bash train.sh
    int exit_code = 0;
    std::vector<RecordedLaunch> launches;  ///< in order

    bool operator==(const LaunchRecord&) const = default;
};

/// JSON with "mgplan_record": 1.
[[nodiscard]] std::string launch_record_json(const LaunchRecord& record);
/// Throws ConfigError for what is no such JSON.
[[nodiscard]] LaunchRecord read_launch_record(std::string_view text, const std::string& where);

/// A launch that trains a model.
struct TrainingLaunch {
    std::int64_t number = 0;                        ///< in the record, from 1
    std::vector<std::string> words;                 ///< Megatron-LM's
    std::map<std::string, std::string> unresolved;  ///< variables in the words without a known value, and why
    LaunchWorld world;                              ///< that the launcher starts
};

/// The training launches of a record, in order. A text of commands (`bash -c "torchrun …"`) is read as a script is.
[[nodiscard]] std::vector<TrainingLaunch> training_launches(const LaunchRecord& record);

/// The job of a launch: that of its number, or of the only one that trains; several with the same words are one. Throws ConfigError where
/// there is no such launch, or several.
[[nodiscard]] Job read_traced_job(const LaunchRecord& record, const std::string& where, std::optional<std::int64_t> number,
                                  const MegatronSurroundings& surroundings = {});

}  // namespace mgplan::formats
