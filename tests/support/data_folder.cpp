#include "tests/support/data_folder.hpp"

namespace mgplan::tests {

const std::string& data_folder() {
    static const std::string folder = MGPLAN_TEST_DATA;
    return folder;
}

}  // namespace mgplan::tests
