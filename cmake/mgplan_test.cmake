# Test programs. mgplan_test(NAME SOURCES … DEPENDS … LABELS …): one GoogleTest program per room.
# Labels: unit and golden run under the address and undefined behaviour sanitizers too, threads (beside one of these)
# under the thread sanitizer, gpu may be skipped where there is none, slow is left out by ./test --quick.
# The target threaded_tests builds the programs labelled threads.
add_custom_target(threaded_tests)

function(mgplan_test name)
  cmake_parse_arguments(TEST "" "" "SOURCES;DEPENDS;LABELS" ${ARGN})
  add_executable(${name} ${TEST_SOURCES})
  target_link_libraries(${name} PRIVATE ${TEST_DEPENDS} GTest::gmock GTest::gtest_main rapidcheck mgplan_warnings)
  target_compile_definitions(${name} PRIVATE MGPLAN_TEST_DATA="${PROJECT_SOURCE_DIR}/tests")
  if("threads" IN_LIST TEST_LABELS)
    add_dependencies(threaded_tests ${name})
  endif()
  # Named cases keep their names; printed values would add bytes that differ from build to build.
  gtest_discover_tests(${name} NO_PRETTY_VALUES DISCOVERY_TIMEOUT 60 PROPERTIES TIMEOUT 300)
  # gtest_discover_tests flattens properties that are lists, so the labels are set by a file that ctest reads after its.
  set(labels_file ${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake)
  file(CONFIGURE OUTPUT ${labels_file} @ONLY CONTENT [[
foreach(test IN LISTS @name@_TESTS)
  set_tests_properties("${test}" PROPERTIES LABELS "@TEST_LABELS@")
endforeach()
]])
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${labels_file})
endfunction()

# mgplan_mpi_program(NAME SOURCES … DEPENDS …): a program for mpirun, with a main of its own.
function(mgplan_mpi_program name)
  cmake_parse_arguments(PROGRAM "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${PROGRAM_SOURCES})
  target_link_libraries(${name} PRIVATE ${PROGRAM_DEPENDS} GTest::gtest mgplan_warnings)
endfunction()

# mgplan_mpi_test(PROGRAM RANKS): runs it on that many ranks, on however few cores, as root too (CI). Label mpi.
function(mgplan_mpi_test program ranks)
  add_test(NAME ${program}_on_${ranks}_ranks
    COMMAND ${MPIEXEC_EXECUTABLE} --oversubscribe ${MPIEXEC_NUMPROC_FLAG} ${ranks} --timeout 240 $<TARGET_FILE:${program}>)
  set_tests_properties(${program}_on_${ranks}_ranks PROPERTIES LABELS mpi TIMEOUT 300 PROCESSORS 2
    ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
endfunction()
