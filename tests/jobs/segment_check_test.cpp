// What a script for Slurm does before it trains: whether the nodes of a segment are in one block, with an srun that only tells it so.

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "jobs/child.hpp"
#include "jobs/rank_failure.hpp"
#include "reports/job_script.hpp"
#include "tests/support/text_of_file.hpp"

namespace mgplan::jobs::segment_check_test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using tests::text_of_file;

/// A node as Slurm tells its tasks of it.
struct Node {
    std::string name, pattern, address;
};

class SegmentCheck : public ::testing::Test {
protected:
    void SetUp() override {
        folder_ = ::testing::TempDir() + fmt::format("mgplan_segments_{}", ::getpid());
        std::filesystem::create_directories(folder_ + "/bin");
        job_.id = "racks";
        job_.folder = job_.working_directory = folder_;
        job_.via = Via::slurm;
        job_.nodes = 4;
        job_.ranks_per_node = 4;
        job_.world = 16;
        job_.segment = 2;
        job_.program = "/bin/echo";
        job_.command = {"trained"};
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    /// Exit code of the script on these nodes; what it and its ranks said is in log(). Tasks come in another order than nodes have.
    int run_on(const std::vector<Node>& nodes, int srun_ends_with = 0) {
        std::string srun =
            "#!/bin/bash\nwhile [[ $1 == -* ]]; do one=${one:-$([[ $1 == --ntasks-per-node=1 ]] && echo yes)}; shift; done\n";
        srun += "if [[ ! $one ]]; then exec \"$@\"; fi\n";
        for (std::size_t i = nodes.size(); i-- > 0;) {
            const Node& node = nodes[i];
            srun += fmt::format("SLURM_NODEID={} SLURMD_NODENAME='{}' ", i, node.name);
            if (!node.pattern.empty())
                srun += fmt::format("SLURM_TOPOLOGY_ADDR_PATTERN='{}' SLURM_TOPOLOGY_ADDR='{}' ", node.pattern, node.address);
            srun += "\"$@\"\n";
        }
        srun += fmt::format("exit {}\n", srun_ends_with);
        const std::string program = folder_ + "/bin/srun";
        std::ofstream(program) << srun;
        EXPECT_EQ(::chmod(program.c_str(), 0755), 0);
        std::ofstream(script_file(job_)) << reports::job_script(job_);
        return ask({"env", fmt::format("PATH={}/bin:/usr/bin:/bin", folder_), "bash", script_file(job_)}, 20s).code;
    }

    [[nodiscard]] std::string logs() const { return folder_ + "/attempt-1"; }
    [[nodiscard]] std::string log() const { return text_of_file(logs() + "/job.log"); }

    static Node in_block(const std::string& block, const std::string& name) { return {name, "block.node", block + "." + name}; }

    std::string folder_;
    Job job_;
};

TEST_F(SegmentCheck, TrainsWhereEachSegmentIsInOneBlock) {
    EXPECT_EQ(run_on({in_block("a", "n1"), in_block("a", "n2"), in_block("b.c", "n7.x"), in_block("b.c", "n8.x")}), 0) << log();
    EXPECT_THAT(log(), AllOf(HasSubstr("trained"), Not(HasSubstr("mgplan:"))));
    // Two segments of one block.
    EXPECT_EQ(run_on({in_block("a", "n1"), in_block("a", "n2"), in_block("a", "n3"), in_block("a", "n4")}), 0) << log();
}

TEST_F(SegmentCheck, EndsWithTheFirstNodeThatIsElsewhere) {
    EXPECT_EQ(run_on({in_block("a", "n1"), in_block("a", "n2"), in_block("a", "n3"), in_block("b", "n7")}), 2);
    EXPECT_THAT(log(), Not(HasSubstr("trained")));
    const auto failure = first_failure(logs());
    ASSERT_TRUE(failure) << log();
    EXPECT_EQ(failure->rank, 12);
    EXPECT_EQ(failure->code, 2);
    EXPECT_THAT(text_of(*failure), AllOf(HasSubstr("rank 12 on n7: n7 is in block b and n3 in block a, where every 2 nodes are to be one"),
                                         HasSubstr("ask for a smaller --segment, or for --segment 0")));
    EXPECT_EQ(text_of_file(logs() + "/exit_code"), "2\n");
}

TEST_F(SegmentCheck, CountsANodeWithoutABlockAsElsewhere) {
    EXPECT_EQ(run_on({in_block("a", "n1"), {"n2", "node", "n2"}, in_block("b", "n7"), in_block("b", "n8")}), 2);
    const auto failure = first_failure(logs());
    ASSERT_TRUE(failure) << log();
    EXPECT_THAT(failure->reason, HasSubstr("n2 is in no block and n1 in block a"));
    EXPECT_EQ(run_on({in_block("a", "n1"), in_block("a", "n2"), {"n3", "node", "n3"}, {"n4", "", ""}}), 2) << "a segment without any";
}

TEST_F(SegmentCheck, SaysWhereSlurmKnowsNoBlocksAndTrains) {
    const std::vector<Node> without{{"n1", "", ""}, {"n2", "", ""}, {"n3", "", ""}, {"n4", "", ""}};
    const std::vector<Node> of_a_tree{
        {"n1", "switch.node", "s0.n1"}, {"n2", "switch.node", "s1.n2"}, {"n3", "switch.node", "s1.n3"}, {"n4", "switch.node", "s2.n4"}};
    for (const auto& nodes : {without, of_a_tree}) {
        std::filesystem::remove_all(logs());
        EXPECT_EQ(run_on(nodes), 0);
        EXPECT_THAT(log(), AllOf(HasSubstr("Slurm tells no blocks of nodes"), HasSubstr("trained")));
    }
    // A node that does not answer is left to the job's own step.
    std::filesystem::remove_all(logs());
    EXPECT_EQ(run_on({in_block("a", "n1"), in_block("b", "n2"), in_block("b", "n7")}, 1), 0);
    EXPECT_THAT(log(), AllOf(HasSubstr("no node was asked for its block"), HasSubstr("trained")));
}

TEST_F(SegmentCheck, IsNotThereWithoutSegments) {
    for (const int segment : {0, 1}) {
        job_.segment = segment;
        EXPECT_THAT(reports::job_script(job_), Not(HasSubstr("SLURM_TOPOLOGY_ADDR")));
    }
    job_.segment = 2;
    job_.via = Via::mpirun;
    EXPECT_THAT(reports::job_script(job_), Not(HasSubstr("SLURM_TOPOLOGY_ADDR")));
}

}  // namespace
}  // namespace mgplan::jobs::segment_check_test
