#include "runtime/launch/rank_from_environment.hpp"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/text/errors.hpp"

namespace mgplan::runtime::rank_from_environment_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Variables = std::map<std::string, std::string, std::less<>>;

LaunchedRank launched(const Variables& variables, const RankFlags& flags = {}) {
    return rank_from_environment(flags, [&](std::string_view name) -> std::optional<std::string> {
        const auto place = variables.find(name);
        if (place == variables.end()) return std::nullopt;
        return place->second;
    });
}

std::vector<std::string> problems_of(const Variables& variables, const RankFlags& flags = {}) {
    try {
        static_cast<void>(launched(variables, flags));
    } catch (const ConfigError& error) {
        return error.problems();
    }
    return {};
}

const Variables kTorchrun{{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"TORCHELASTIC_RUN_ID", "none"}};
const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "3"}};
const Variables kPmi{{"PMI_RANK", "2"}, {"PMI_SIZE", "6"}, {"MPI_LOCALRANKID", "0"}};
const Variables kSlurm{{"SLURM_PROCID", "9"}, {"SLURM_NTASKS", "16"}, {"SLURM_STEP_NUM_TASKS", "16"}, {"SLURM_LOCALID", "1"}};

Variables together(std::initializer_list<Variables> all) {
    Variables sum;
    for (const auto& each : all) sum.insert(each.begin(), each.end());
    return sum;
}

TEST(RankFromEnvironment, IsRankZeroOfOneWithoutALauncher) {
    EXPECT_EQ(launched({}), (LaunchedRank{0, 1, std::nullopt, RankSource::none}));
}

TEST(RankFromEnvironment, ReadsEachLauncher) {
    EXPECT_EQ(launched(kTorchrun), (LaunchedRank{5, 8, 1, RankSource::torchrun}));
    EXPECT_EQ(launched(kOpenMpi), (LaunchedRank{3, 4, 3, RankSource::open_mpi}));
    EXPECT_EQ(launched(kPmi), (LaunchedRank{2, 6, 0, RankSource::pmi}));
    EXPECT_EQ(launched(kSlurm), (LaunchedRank{9, 16, 1, RankSource::slurm}));
    EXPECT_EQ(launched({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}), (LaunchedRank{0, 1, std::nullopt, RankSource::pmi}));
}

TEST(RankFromEnvironment, TakesFlagsThenTorchrunThenOpenMpiThenPmiThenSlurm) {
    EXPECT_EQ(launched(together({kPmi, kSlurm})).source, RankSource::pmi);
    EXPECT_EQ(launched(together({kOpenMpi, kPmi, kSlurm})).source, RankSource::open_mpi);
    EXPECT_EQ(launched(together({kTorchrun, kOpenMpi, kPmi, kSlurm})).source, RankSource::torchrun);
    EXPECT_EQ(launched(together({kTorchrun, kOpenMpi}), {7, 9, 2}), (LaunchedRank{7, 9, 2, RankSource::flags}));
    EXPECT_EQ(launched({}, {.rank = 1, .size = 2, .local_rank = {}}), (LaunchedRank{1, 2, std::nullopt, RankSource::flags}));
}

TEST(RankFromEnvironment, TakesTheLocalRankOfASrunThatSpeaksPmi) {
    const Variables srun{{"PMI_RANK", "9"}, {"PMI_SIZE", "16"}};
    EXPECT_EQ(launched(together({srun, kSlurm})), (LaunchedRank{9, 16, 1, RankSource::pmi}));
    EXPECT_EQ(launched(together({kPmi, kSlurm})).local_rank, 0);
    EXPECT_EQ(launched(together({{{"PMI_RANK", "2"}, {"PMI_SIZE", "6"}}, kSlurm})).local_rank, std::nullopt) << "another job step";
}

TEST(RankFromEnvironment, DoesNotTakeABatchScriptForATask) {
    EXPECT_EQ(launched({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "16"}, {"SLURM_LOCALID", "0"}}).source, RankSource::none);
}

TEST(RankFromEnvironment, RefusesHalfOfAPair) {
    EXPECT_THAT(problems_of({{"RANK", "3"}}),
                ElementsAre("RANK = 3 is set without WORLD_SIZE; torchrun sets both: unset it, or set the other too"));
    EXPECT_THAT(problems_of({{"OMPI_COMM_WORLD_SIZE", "3"}}),
                ElementsAre(HasSubstr("OMPI_COMM_WORLD_SIZE = 3 is set without OMPI_COMM_WORLD_RANK")));
    EXPECT_THAT(problems_of({}, {.rank = 1, .size = {}, .local_rank = {}}), ElementsAre(HasSubstr("a rank is given without a world size")));
    EXPECT_THAT(problems_of({}, {.rank = {}, .size = 2, .local_rank = {}}), ElementsAre(HasSubstr("a world size is given without a rank")));
    EXPECT_THAT(problems_of({}, {.rank = {}, .size = {}, .local_rank = 0}),
                ElementsAre(HasSubstr("a local rank is given without a rank and a world size")));
}

TEST(RankFromEnvironment, RefusesWhatIsNoRankOfItsWorld) {
    EXPECT_THAT(problems_of({{"RANK", "8"}, {"WORLD_SIZE", "8"}}),
                ElementsAre("RANK = 8 is outside the world of WORLD_SIZE = 8; ranks count from 0"));
    EXPECT_THAT(problems_of({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "4"}}),
                ElementsAre(HasSubstr("MPI_LOCALRANKID = 4 is outside the world of PMI_SIZE = 4")));
    EXPECT_THAT(problems_of({{"RANK", "two"}, {"WORLD_SIZE", "0"}}), ElementsAre(HasSubstr("RANK"), HasSubstr("WORLD_SIZE")));
    EXPECT_THAT(problems_of({{"RANK", "0"}, {"WORLD_SIZE", "9223372036854775808"}}), ElementsAre(HasSubstr("WORLD_SIZE")));
    EXPECT_THAT(problems_of({{"RANK", ""}, {"WORLD_SIZE", "2"}}), ElementsAre(HasSubstr("RANK")));
    EXPECT_THAT(problems_of({}, {-1, 0, -5}),
                ElementsAre(HasSubstr("rank = -1"), HasSubstr("world size = 0"), HasSubstr("local rank = -5")));
    EXPECT_THAT(problems_of({}, {4, 4, {}}), ElementsAre("rank = 4 is outside the world of size 4; ranks count from 0"));
}

TEST(RankFromEnvironment, RefusesLeftOverVariablesThatContradictTheLauncher) {
    const Variables stale{{"RANK", "0"}, {"WORLD_SIZE", "8"}};
    EXPECT_THAT(
        problems_of(together({stale, kOpenMpi})),
        ElementsAre(HasSubstr("RANK = 0 and WORLD_SIZE = 8 contradict OMPI_COMM_WORLD_RANK = 3 and OMPI_COMM_WORLD_SIZE = 4; unset RANK")));
    EXPECT_THAT(problems_of(together({stale, kPmi})), ElementsAre(HasSubstr("contradict PMI_RANK = 2 and PMI_SIZE = 6")));
    // A script under mpirun that hands its rank on to torch.distributed.
    EXPECT_EQ(launched(together({{{"RANK", "3"}, {"WORLD_SIZE", "4"}}, kOpenMpi})).source, RankSource::torchrun);
    // Something like torchrun on each of four hosts; but never fewer ranks than processes.
    const Variables nested{{"RANK", "7"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}};
    EXPECT_EQ(launched(together({nested, kOpenMpi})).rank, 7);
    const Variables fewer{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}};
    EXPECT_EQ(problems_of(together({fewer, kOpenMpi})).size(), 1U);
    // torchrun on each host of an mpirun or srun.
    EXPECT_EQ(launched(together({kTorchrun, kOpenMpi, kSlurm})).source, RankSource::torchrun);
}

TEST(RankFromEnvironment, ReadsTheEnvironmentOfTheProcess) {
    ::setenv("MGPLAN_TEST_RANK", "7", 1);
    EXPECT_EQ(process_environment()("MGPLAN_TEST_RANK"), "7");
    EXPECT_EQ(process_environment()("MGPLAN_TEST_NO_SUCH_VARIABLE"), std::nullopt);
}

}  // namespace
}  // namespace mgplan::runtime::rank_from_environment_test
