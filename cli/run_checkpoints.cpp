#include "cli/run_checkpoints.hpp"

#include <ostream>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "runtime/checkpoint/checkpoint_folder.hpp"
#include "runtime/checkpoint/saved_checkpoint.hpp"

namespace mgplan::cli {
namespace {

/// Before a save; `last`: this job's newest checkpoint.
void keep_checkpoints(runtime::FolderLock& lock, const RunFolder& folder, std::int64_t last, Console& console) {
    if (!keep_folder(lock, folder, console)) return;
    // Somebody may have come in and be gone again.
    if (const auto steps = runtime::complete_checkpoints(folder.path); !steps.empty() && steps.back() > last) {
        throw RunError(fmt::format(
            "checkpoint folder {}: its file lock was removed while this job ran, and another job has saved step {} there since: "
            "nothing more is saved, because two jobs would overwrite each other's checkpoints; name another folder",
            folder.path, steps.back()));
    }
}

}  // namespace

RunFolder checkpoint_folder(const std::string& path) {
    return {"--checkpoint", path, runtime::FilePurpose::checkpoint};
}

runtime::CheckpointOptions checkpoints_of(const CheckpointRequest& request, const runtime::TrainingRunOptions& run,
                                          runtime::FolderLock* lock, Console& console) {
    runtime::CheckpointOptions options;
    if (!request.folder) return options;
    options.folder = *request.folder;
    options.every = request.every;
    options.keep = request.keep;
    const auto steps = runtime::complete_checkpoints(options.folder);
    if (!request.resume && !steps.empty()) {
        throw ConfigError(
            fmt::format("--checkpoint {} holds a checkpoint of step {} already; add --resume to go on from it, or name another folder",
                        options.folder, steps.back()));
    }
    if (request.resume) options.resume = runtime::SavedCheckpoint::open_last(options.folder);
    if (options.resume) {
        runtime::check_identity(*options.resume, run.task, *run.data);
        const runtime::Manifest& manifest = options.resume->manifest();
        if (request.reports) {
            console.err << fmt::format("mgplan: continues after step {} of {}, saved by {}\n", manifest.position.steps,
                                       options.resume->folder(), manifest.layout);
            if (manifest.position.steps >= request.steps)
                console.err << fmt::format("mgplan: --steps = {} are done: nothing is left to train\n", request.steps);
        }
    } else if (request.resume && request.reports) {
        console.err << fmt::format("mgplan: no complete checkpoint in {}: begins at the first step\n", options.folder);
    }
    const auto last = std::make_shared<std::int64_t>(steps.empty() ? 0 : steps.back());
    if (lock != nullptr) {
        options.before_save = [lock, last, &console, folder = checkpoint_folder(options.folder)] {
            keep_checkpoints(*lock, folder, *last, console);
        };
    }
    options.on_saved = [last, &err = console.err](std::int64_t step, std::int64_t bytes, double seconds) {
        *last = step;
        err << fmt::format("mgplan: step {} saved: {} in {:.3f} s\n", step, human_bytes(bytes), seconds);
        err.flush();
    };
    return options;
}

}  // namespace mgplan::cli
