# One folder under src/ is one target. hvd_library(base) makes hvd_base from src/base/*.cc; DEPENDS lists the folders it
# may include. Includes are written "folder/file.h" and found through one link per folder, so that an include against
# the arrows of docs/architecture.md does not compile.
function(hvd_library folder)
  cmake_parse_arguments(ARG "" "" "DEPENDS;SOURCES;LINK" ${ARGN})
  string(REPLACE "/" "_" name "${folder}")
  if(NOT ARG_SOURCES)
    file(GLOB ARG_SOURCES CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/${folder}/*.cc")
  endif()
  set(links "${PROJECT_BINARY_DIR}/include/${name}")
  get_filename_component(parent "${links}/${folder}" DIRECTORY)
  file(MAKE_DIRECTORY "${parent}")
  file(CREATE_LINK "${PROJECT_SOURCE_DIR}/src/${folder}" "${links}/${folder}" SYMBOLIC)
  add_library(hvd_${name} STATIC ${ARG_SOURCES})
  target_include_directories(hvd_${name} PUBLIC "${links}")
  foreach(dependency IN LISTS ARG_DEPENDS)
    string(REPLACE "/" "_" dependency "${dependency}")
    target_link_libraries(hvd_${name} PUBLIC hvd_${dependency})
  endforeach()
  target_link_libraries(hvd_${name} PUBLIC hvd_flags ${ARG_LINK})
endfunction()

# A GoogleTest program tests/cpp/<folder>/*.cc, one ctest entry per test case.
function(hvd_test folder)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  string(REPLACE "/" "_" name "${folder}")
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/cpp/${folder}/*.cc")
  add_executable(test_${name} ${sources})
  set_target_properties(test_${name} PROPERTIES UNITY_BUILD OFF)  # every test file has names of its own
  target_include_directories(test_${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests/cpp")
  target_link_libraries(test_${name} PRIVATE ${ARG_LINK} GTest::gtest_main GTest::gmock)
  # Under sanitizers most of the time would go into optimising the matchers.
  target_compile_options(test_${name} PRIVATE $<$<CONFIG:Debug>:-O0>)
  gtest_discover_tests(test_${name} TEST_PREFIX "${folder}/" DISCOVERY_MODE PRE_TEST PROPERTIES TIMEOUT 300)
endfunction()
