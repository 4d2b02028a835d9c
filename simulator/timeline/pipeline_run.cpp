#include "simulator/timeline/pipeline_run.hpp"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "plan/text/errors.hpp"

namespace mgplan::simulator {
namespace {

/// Streams of one rank: time until which each is occupied.
struct Streams {
    double compute = 0;
    double data_parallel = 0;
    std::array<double, 2> link{};  ///< to the previous and to the next rank
};

class Run {
public:
    Run(const PipelineProgram& program, const PipelineTimes& times, bool details)
        : program_(program), times_(times), details_(details), streams_(static_cast<std::size_t>(program.pp)) {
        MGPLAN_ASSERT(program.deadlock.empty(), "a program that comes to its end");
        result_.busy.assign(streams_.size(), 0);
        gathered_.assign(streams_.size() * static_cast<std::size_t>(program.chunks), 0);
        held_.assign(streams_.size(), 0);
        if (details) {
            result_.begins.resize(program.ops.size());
            result_.ends.resize(program.ops.size());
        }
        arrivals_.resize(program.ops.size());
        if (!times.gather.empty() && times.overlap_gather) start_gathers();
    }

    PipelineRun run() {
        run_ops();
        for (std::size_t r = 0; r < streams_.size(); ++r) {
            result_.last_pass.push_back(streams_[r].compute);
            double reduced = std::max(streams_[r].compute, streams_[r].data_parallel);
            if (held_[r] > 0) {
                if (details_) result_.data_parallel.push_back({static_cast<std::uint16_t>(r), 0, false, reduced, reduced + held_[r]});
                reduced += held_[r];
            }
            result_.reduced.push_back(reduced);
            result_.end = std::max(result_.end, reduced);
        }
        if (details_) result_.arrivals = std::move(arrivals_);
        return std::move(result_);
    }

private:
    [[nodiscard]] std::size_t chunk_index(int rank, int chunk) const {
        return static_cast<std::size_t>(rank) * static_cast<std::size_t>(program_.chunks) + static_cast<std::size_t>(chunk);
    }

    /// Gathers the parameters updated by the iteration before, chunk by chunk from the start of this one.
    void start_gathers() {
        for (int r = 0; r < program_.pp; ++r) {
            double& stream = streams_[static_cast<std::size_t>(r)].data_parallel;
            for (int c = 0; c < program_.chunks; ++c) {
                const std::size_t index = chunk_index(r, c);
                const double begin = stream;
                stream += times_.gather[index];
                gathered_[index] = stream;
                if (details_ && stream > begin)
                    result_.data_parallel.push_back({static_cast<std::uint16_t>(r), static_cast<std::uint16_t>(c), true, begin, stream});
            }
        }
    }

    /// Searches simulate millions of passes: values that no pass changes are read before the loop.
    void run_ops() {
        const std::size_t count = program_.ops.size(), chunks = static_cast<std::size_t>(program_.chunks);
        const ProgramOp* const ops = program_.ops.data();
        const double* const passes = times_.passes.data();
        const double* const factors = times_.factors.empty() ? nullptr : times_.factors.data();
        double* const arrivals = arrivals_.data();
        double* const busy = result_.busy.data();
        Streams* const of_rank = streams_.data();
        const double overlap_cost = times_.overlap_cost, transfer = times_.transfer;
        const bool gathers = !times_.gather.empty() && times_.overlap_gather, reduces = !times_.reduce.empty();
        const bool transfers_overlap = times_.overlap_transfers, details = details_;
        for (std::size_t i = 0; i < count; ++i) {
            const ProgramOp& op = ops[i];
            const std::size_t chunk = op.rank * chunks + op.chunk;
            Streams& streams = of_rank[op.rank];
            double begin = streams.compute;
            if (op.input >= 0) begin = std::max(begin, arrivals[op.input]);
            double seconds = passes[chunk * static_cast<std::size_t>(kPasses) + static_cast<std::size_t>(op.pass)];
            if (factors != nullptr) seconds *= factors[i];
            if (gathers && op.first_forward) std::tie(begin, seconds) = follow_gather(chunk, begin, seconds);
            if (overlap_cost > 0 && begin < streams.data_parallel)
                seconds += overlap_cost * std::min(seconds, streams.data_parallel - begin);
            double end = begin + seconds;
            if (reduces && op.last_gradient) end = reduce(op, chunk, begin, end);
            streams.compute = end;
            busy[op.rank] += end - begin;
            if (details) {
                result_.begins[i] = begin;
                result_.ends[i] = end;
            }
            if (!op.sends) {
                arrivals[i] = end;
            } else if (transfers_overlap) {
                double& link = streams.link[op.to_next ? 1 : 0];
                arrivals[i] = link = std::max(link, end) + transfer;
            } else {
                arrivals[i] = streams.compute = end + transfer;
            }
        }
    }

    /// Begin and duration of a chunk's first forward: layer by layer it follows the buckets, so it waits for the first and ends after the
    /// last.
    [[nodiscard]] std::pair<double, double> follow_gather(std::size_t chunk, double begin, double seconds) const {
        if (gathered_[chunk] <= 0) return {begin, seconds};
        const double parts = times_.buckets[chunk];
        const double behind_first = std::max(begin, gathered_[chunk] - times_.gather[chunk] * (1 - 1 / parts));
        return {behind_first, std::max(seconds, gathered_[chunk] + seconds / parts - behind_first)};
    }

    /// Starts the reductions of the chunk's gradients, which the op from `begin` to `end` completes bucket by bucket. Returns the end of
    /// the op, slowed down by concurrent communication.
    double reduce(const ProgramOp& op, std::size_t chunk, double begin, double end) {
        Streams& streams = streams_[op.rank];
        const double seconds = times_.reduce[chunk];
        if (seconds <= 0) return end;
        if (!times_.overlap_reduce) {
            held_[op.rank] += seconds;
            return end;
        }
        const double parts = times_.buckets[chunk];
        const double whole = end - begin;
        // All but the last bucket may run in parallel with the op.
        const double hidden = std::min(seconds * (1 - 1 / parts), whole * (1 - 1 / parts));
        end += times_.overlap_cost * hidden;
        const double first = begin + (end - begin) / parts;
        const double started = std::max(streams.data_parallel, first);
        streams.data_parallel = std::max(std::max(streams.data_parallel, end) + seconds / parts, started + seconds);
        if (details_) result_.data_parallel.push_back({op.rank, op.chunk, false, started, streams.data_parallel});
        return end;
    }

    const PipelineProgram& program_;
    const PipelineTimes& times_;
    bool details_;
    std::vector<Streams> streams_;
    std::vector<double> gathered_;  ///< by chunk: time at which its parameters are complete
    std::vector<double> held_;      ///< by rank: seconds of reductions that wait for its last pass
    std::vector<double> arrivals_;
    PipelineRun result_;
};

}  // namespace

PipelineRun run_pipeline(const PipelineProgram& program, const PipelineTimes& times, bool details) {
    return Run(program, times, details).run();
}

}  // namespace mgplan::simulator
